"""A small application of Spring Kafka's: listeners, retries with dead letters, transactions, and @RetryableTopic (Orders.java)."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/spring"
CLIENT, VERSION = "Spring Kafka, an application (Java)", "Spring Boot 4.0.7"
LIMIT_S = 600
PARTS = ["listener", "retry", "transaction", "retryable topic"]


def command():
    return environments.java(SOURCE, SOURCE / "Orders.java", "floodmark.orders.Orders")


def setup():
    command()


def run(context):
    yield from script.run(context, command(), PARTS)
