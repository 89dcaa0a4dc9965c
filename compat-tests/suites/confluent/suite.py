"""The common script (lib/script.py) through confluent-kafka, today's librdkafka, from Python."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/confluent"
CLIENT, VERSION = "confluent-kafka (Python)", "2.16.1"
LIMIT_S = 600


def setup():
    environments.python(SOURCE)


def run(context):
    yield from script.run(context, [environments.python(SOURCE), SOURCE / "script.py"], env={"PYTHONPATH": str(HERE)})
