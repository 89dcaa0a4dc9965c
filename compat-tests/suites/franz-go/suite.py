"""The tests of franz-go's pkg/kgo that talk to a broker. The others of the package talk to nobody and are left out."""
import re

from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.toolchain import CACHE, HERE, digest, make_once, need, run as step, say

SOURCE = HERE / "suites/franz-go"
CLIENT, VERSION = "franz-go, tests of pkg/kgo", "1.22.3"
LIMIT_S = 1500
TEST_LIMIT_S = 300
QUICK = """TestMaxVersions TestUnknownGroupOffsetFetchPinned TestProcessHooks TestProcessHooksErrors TestPing TestIssue1034 TestIssue325
TestConsumeTopicRetrieval TestConsumeRegex TestIssue337 TestDirectPartitionPurge TestIssue434 TestAddRemovePartitions
TestPauseIssue489 TestPauseIssueOct2023 TestIssue523 TestIssue648 TestIssue810 TestIssue865 TestIssueFetchLargerThanBrokerMaxReadBytes
TestPooling TestHookPollStart TestLookbackMilli TestConsumeMaxDecompressBatchBytes TestClient_Produce TestIssue769
TestClient_ProduceLargeMessages""".split()
# Each by itself, with what the broker must serve.
LONG = {"TestGroupSimple": "group", "Test848RegexBrokerResolves": "group848", "TestGroupETL": "group", "TestTxnEtl": "transaction"}
RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)")
RECORDS = 50_000


def test_binary():
    def build(path):
        need("go", "build franz-go's tests (Go 1.26 or newer)")
        say("building franz-go's tests")
        step(["go", "test", "-c", "-o", path, "github.com/twmb/franz-go/pkg/kgo"], "build franz-go's tests", cwd=SOURCE)

    return make_once(CACHE / f"franz-go-tests-{digest(SOURCE / 'go.mod')}", build)


def setup():
    test_binary()


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
    command = [test_binary(), "-test.v", "-test.timeout", f"{TEST_LIMIT_S}s", "-test.run", f"^({'|'.join(tests)})$"]
    environment = {"KGO_SEEDS": context.bootstrap, "KGO_TEST_RF": str(context.brokers), "KGO_LOG_LEVEL": "none",
                   "KGO_TEST_RECORDS": str(RECORDS), "KGO_TEST_MAX_TOPIC_PARTS": "8",
                   # Transactions are also ended in the way that kgo calls unsafe.
                   "KGO_TEST_UNSAFE": "1"}
    left, last = dict.fromkeys(tests), ""
    for line in context.lines(command, name, cwd=context.work, env=environment, limit_s=TEST_LIMIT_S + 30):
        found = RESULT.match(line)
        if found and found[2] in left:
            what = {"PASS": PASSED, "FAIL": FAILED, "SKIP": NOT_APPLICABLE}[found[1]]
            left.pop(found[2])
            yield Outcome(found[2], what, "" if what == PASSED else last.strip())
        elif line.strip() and not line.startswith("==="):
            last = line
    for test in left:
        yield Outcome(test, FAILED, f"gave no result; the last line of its log: {last.strip()}")
