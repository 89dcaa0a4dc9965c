"""The common script (lib/script.py) through sarama."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/sarama"
CLIENT, VERSION = "sarama (Go)", "1.61.1"
LIMIT_S = 600


def setup():
    environments.go(SOURCE)


def run(context):
    yield from script.run(context, [environments.go(SOURCE)])
