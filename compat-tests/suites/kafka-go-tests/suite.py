"""kafka-go's own tests that talk to a broker, each in a process of its own. They look for it at localhost:9092."""
from lib import gotests
from lib.toolchain import HERE

SOURCE, PACKAGE = HERE / "suites/kafka-go-tests", "github.com/segmentio/kafka-go"
CLIENT, VERSION = "segmentio/kafka-go, its tests (Go)", "0.4.51"
LIMIT_S = 1800
TEST_LIMIT_S = 150
PORTS = [9092]
# As in the broker that the tests bring along, which has Kafka's own delay: a group that reads metadata once, right after its topic
# was asked for, finds it then.
SETTINGS = {"message.max.bytes": "200000000", "group.initial.rebalance.delay.ms": "3000"}
TALKS = ("localhost:9092", "newLocalClient(")  # what the files say that have such tests


def setup():
    gotests.binary(SOURCE, PACKAGE)


def run(context):
    folder = gotests.sources(SOURCE, PACKAGE)
    files = [file for file in folder.glob("*_test.go") if any(word in file.read_text() for word in TALKS)]
    for test in gotests.functions(files):
        if not context.select or any(word in test for word in context.select):
            yield gotests.play_one(context, gotests.binary(SOURCE, PACKAGE), test, folder, {"KAFKA_VERSION": "4.0.0"}, TEST_LIMIT_S)
