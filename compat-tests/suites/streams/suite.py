"""A word count by Kafka Streams, exactly once (exactly_once_v2): the application of compat-tests/exactly_once, through whose brokers
faults go there. Here its instances come, are killed and go on (words.py)."""
from exactly_once.programs import word_count
from lib import script, toolchain
from lib.toolchain import HERE

SOURCE = HERE / "suites/streams"
CLIENT, VERSION = "Kafka Streams, a word count with exactly_once_v2", "4.4.0"
LIMIT_S = 600


def setup():
    word_count()
    toolchain.python()


def run(context):
    env = {"PYTHONPATH": f"{HERE}:{HERE / 'exactly_once'}", "SUITE_WORK": str(context.work)}
    yield from script.run(context, [toolchain.python(), SOURCE / "words.py"], ["streams"], env, limit_s=400)
