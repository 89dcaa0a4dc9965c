"""The common script (lib/script.py) through kafka-python as it was for years, and as Debian still has it: python3-kafka."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/python3-kafka"
CLIENT, VERSION = "python3-kafka (kafka-python of Debian 12)", "2.0.2"
LIMIT_S = 600
PARTS = ["admin", "produce", "consume", "errors", "group"]  # it has no transactions


def setup():
    environments.python(SOURCE)


def run(context):
    yield from script.run(context, [environments.python(SOURCE), SOURCE / "script.py"], PARTS, env={"PYTHONPATH": str(HERE)})
