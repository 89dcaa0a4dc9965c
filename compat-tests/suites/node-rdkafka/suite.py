"""The common script (lib/script.py) through node-rdkafka, which compiles the librdkafka that it carries."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/node-rdkafka"
CLIENT, VERSION = "node-rdkafka (Node)", "3.6.1"
LIMIT_S = 600


def place():
    return environments.node(SOURCE, native=["node-rdkafka"])


def setup():
    place()


def run(context):
    yield from script.run(context, ["node", place() / "script.js"])
