"""The common script (lib/script.py) through Kafka's Java client 2.1.1, which is still in use."""
from lib import environments, script
from lib.toolchain import HERE

CLIENT, VERSION = "kafka-clients (Java)", "2.1.1"
LIMIT_S = 900


def command():
    return environments.java(HERE / "suites/java-2.1", HERE / "suites/java-2.1/Script.java", "Script")


def setup():
    command()


def run(context):
    yield from script.run(context, command())
