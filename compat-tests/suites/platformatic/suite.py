"""The common script (lib/script.py) through @platformatic/kafka; its groups by both protocols. It wants a newer Node than most
machines have, so it brings its own.
"""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/platformatic"
CLIENT, VERSION = "@platformatic/kafka (Node)", "2.12.1"
LIMIT_S = 600


def place():
    return environments.node(SOURCE, native=["node"])


def setup():
    place()


def run(context):
    yield from script.run(context, [place() / "node_modules/node/bin/node", place() / "script.js"])
