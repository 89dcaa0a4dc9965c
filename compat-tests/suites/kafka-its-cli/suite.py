"""Kafka's own integration tests, as kafka-its, of the command line tools."""
from lib import suites
from lib.toolchain import HERE

its = suites.load("kafka-its")
CLIENT, VERSION = "Apache Kafka's integration tests, command line tools", its.VERSION
LIMIT_S, OWN_BROKERS, PROTOCOL = its.LIMIT_S, True, its.PROTOCOL
setup = its.setup


def run(context):
    yield from its.run(context, HERE / "suites/kafka-its-cli/tests.txt")
