"""The tests of franz-go's pkg/kgo that talk to a broker, ten times over, for what only happens sometimes. The others of the package
talk to nobody and are left out."""
from lib import gotests
from lib.outcome import NOT_APPLICABLE, Outcome
from lib.toolchain import HERE

SOURCE, PACKAGE = HERE / "suites/franz-go", "github.com/twmb/franz-go/pkg/kgo"
CLIENT, VERSION = "franz-go, tests of pkg/kgo, ten times", "1.22.3"
LIMIT_S = 3600
ROUNDS = 10
TEST_LIMIT_S = 1200
QUICK = """TestMaxVersions TestUnknownGroupOffsetFetchPinned TestProcessHooks TestProcessHooksErrors TestPing TestIssue1034 TestIssue325
TestConsumeTopicRetrieval TestConsumeRegex TestIssue337 TestDirectPartitionPurge TestIssue434 TestAddRemovePartitions
TestPauseIssue489 TestPauseIssueOct2023 TestIssue523 TestIssue648 TestIssue810 TestIssue865 TestIssueFetchLargerThanBrokerMaxReadBytes
TestPooling TestHookPollStart TestLookbackMilli TestConsumeMaxDecompressBatchBytes TestClient_Produce TestIssue769
TestClient_ProduceLargeMessages""".split()
# Each by itself, with what the broker must serve.
LONG = {"TestGroupSimple": "group", "Test848RegexBrokerResolves": "group848", "TestGroupETL": "group", "TestTxnEtl": "transaction"}
RECORDS = 50_000


def setup():
    gotests.binary(SOURCE, PACKAGE)


def run(context):
    quick = [test for test in QUICK if not context.select or test in context.select]
    if quick:
        yield from play(context, quick, "quick")
    for test, part in LONG.items():
        if context.select and test not in context.select:
            continue
        missing = context.missing(part)
        if missing:
            yield Outcome(test, NOT_APPLICABLE, f"not served yet: {', '.join(missing)}")
        else:
            yield from play(context, [test], test)


def play(context, tests, name):
    environment = {"KGO_SEEDS": context.bootstrap, "KGO_TEST_RF": str(context.brokers), "KGO_LOG_LEVEL": "none",
                   "KGO_TEST_RECORDS": str(RECORDS), "KGO_TEST_MAX_TOPIC_PARTS": "8",
                   # Transactions are also ended in the way that kgo calls unsafe.
                   "KGO_TEST_UNSAFE": "1"}
    yield from gotests.play(context, gotests.binary(SOURCE, PACKAGE), tests, name, context.work, environment, TEST_LIMIT_S, ROUNDS)
