"""rskafka, a small client in Rust that has neither groups nor transactions, and no settings: the common script (lib/script.py), and
its own tests."""
from lib import crates, environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/rskafka"
CLIENT, VERSION = "rskafka (Rust), and its tests", "0.6.0"
LIMIT_S = 1200
# These tests end at once where their variable is not set.
ABSENT = {"java": "runs Java's client inside the test's process", "sasl": "SASL is not served yet", "tls": "TLS is not served yet",
          "socks5": "wants a SOCKS5 proxy"}


def setup():
    environments.rust(SOURCE)
    crates.binaries(SOURCE, "rskafka")


def run(context):
    yield from script.run(context, [environments.rust(SOURCE)], parts=["admin", "produce", "consume", "errors"])
    environment = {"TEST_INTEGRATION": "1", "TEST_BROKER_IMPL": "kafka", "KAFKA_CONNECT": context.bootstrap}
    yield from crates.run(context, SOURCE, "rskafka", environment, ABSENT)
