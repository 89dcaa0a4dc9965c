"""A small application of Vert.x's Kafka client: administration, streams that push back, a group, transactions (Desk.java)."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/vertx"
CLIENT, VERSION = "Vert.x Kafka client, an application (Java)", "5.0.7"
LIMIT_S = 600
PARTS = ["admin", "stream", "group", "transaction"]


def command():
    return environments.java(SOURCE, SOURCE / "Desk.java", "Desk")


def setup():
    command()


def run(context):
    yield from script.run(context, command(), PARTS)
