"""The common script (lib/script.py) through kcat, on the librdkafka that Debian 12 has. kcat makes no topics: confluent-kafka does."""
from lib import script, toolchain
from lib.toolchain import HERE

SOURCE = HERE / "suites/kcat"
CLIENT, VERSION = "kcat, on Debian's librdkafka", "1.7.1, on 2.0.2"
LIMIT_S = 600
PARTS = ["produce", "consume", "errors", "group", "transaction"]


def setup():
    toolchain.kcat()
    toolchain.python()


def run(context):
    yield from script.run(context, [toolchain.python(), SOURCE / "script.py"], PARTS, env={"PYTHONPATH": str(HERE)})
