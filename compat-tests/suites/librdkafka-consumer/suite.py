"""librdkafka's own test suite, as in `librdkafka`, whose consumers use the `consumer` group protocol (KIP-848)."""
from lib import suites

librdkafka = suites.load("librdkafka")
CLIENT, VERSION = "librdkafka's test suite, group.protocol=consumer", librdkafka.VERSION
LIMIT_S, SETTINGS = librdkafka.LIMIT_S, librdkafka.SETTINGS
setup = librdkafka.setup


def run(context):
    yield from librdkafka.run(context, {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}, "group848")
