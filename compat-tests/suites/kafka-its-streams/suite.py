"""Kafka's own integration tests, as kafka-its, of Kafka Streams and Kafka Connect."""
from lib import suites
from lib.toolchain import HERE

its = suites.load("kafka-its")
CLIENT, VERSION = "Apache Kafka's integration tests, Streams and Connect", its.VERSION
LIMIT_S, OWN_BROKERS, PROTOCOL = its.LIMIT_S, True, its.PROTOCOL
setup = its.setup


def run(context):
    yield from its.run(context, HERE / "suites/kafka-its-streams/tests.txt")
