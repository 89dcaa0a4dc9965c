"""The common script (lib/script.py) through aiokafka, from Python."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/aiokafka"
CLIENT, VERSION = "aiokafka (Python)", "0.14.0"
LIMIT_S = 600


def setup():
    environments.python(SOURCE)


def run(context):
    yield from script.run(context, [environments.python(SOURCE), SOURCE / "script.py"], env={"PYTHONPATH": str(HERE)})
