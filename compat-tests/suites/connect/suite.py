"""Kafka Connect with its file connectors, standalone, and as two workers that write exactly once (files.py)."""
from lib import environments, script, toolchain
from lib.toolchain import HERE

SOURCE = HERE / "suites/connect"
CLIENT, VERSION = "Kafka Connect with its file connectors", "4.3.1"
LIMIT_S = 900
PARTS = ["standalone", "distributed"]


def setup():
    environments.jars(SOURCE)
    toolchain.python()


def run(context):
    env = {"PYTHONPATH": str(HERE), "SUITE_WORK": str(context.work)}
    yield from script.run(context, [toolchain.python(), SOURCE / "files.py"], PARTS, env, limit_s=400)
