"""rdkafka's own tests (Rust, on the librdkafka that it carries). They look for one broker with the id 0 at localhost:9092."""
from lib import crates
from lib.toolchain import HERE

SOURCE = HERE / "suites/rdkafka"
CLIENT, VERSION = "rdkafka, its tests (Rust)", "0.39.0"
LIMIT_S = 1800
PORTS, FIRST_ID = [9092], 0
# Some records are of 1970, and must not go before they are read.
SETTINGS = {"num.partitions": "3", "log.retention.ms": "-1"}


def setup():
    crates.binaries(SOURCE, "rdkafka")


def run(context):
    yield from crates.run(context, SOURCE, "rdkafka", {"KAFKA_HOST": context.bootstrap})
