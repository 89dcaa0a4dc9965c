"""The common script (lib/script.py) through @platformatic/kafka; its groups by both protocols."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/platformatic"
CLIENT, VERSION = "@platformatic/kafka (Node)", "2.12.1"
LIMIT_S = 600


def setup():
    environments.node(SOURCE)


def run(context):
    yield from script.run(context, ["node", environments.node(SOURCE) / "script.js"])
