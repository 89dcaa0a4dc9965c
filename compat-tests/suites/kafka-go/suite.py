"""The common script (lib/script.py) through segmentio/kafka-go."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/kafka-go"
CLIENT, VERSION = "segmentio/kafka-go (Go)", "0.4.51"
LIMIT_S = 600


def setup():
    environments.go(SOURCE)


def run(context):
    yield from script.run(context, [environments.go(SOURCE)])
