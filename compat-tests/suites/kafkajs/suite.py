"""The common script (lib/script.py) through kafkajs."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/kafkajs"
CLIENT, VERSION = "kafkajs (Node)", "2.2.4"
LIMIT_S = 600


def setup():
    environments.node(SOURCE)


def run(context):
    place = environments.node(SOURCE)
    yield from script.run(context, ["node", place / "script.js"], env={"KAFKAJS_NO_PARTITIONER_WARNING": "1"})
