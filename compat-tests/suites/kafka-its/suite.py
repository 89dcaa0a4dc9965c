"""Apache Kafka's own integration tests, which start their brokers inside the test's JVM. Here classes of ours with the names of
those that do so come first on the class path, and the tests get processes instead: `java/`. The tests themselves are Kafka's,
as Maven has them.

Some tests hold a broker against what Kafka's own classes know of settings and API versions. For these, in `newest.txt`, the classes
are those of the newest Kafka, which the broker is to equal, and only the tests are older.

`tests.txt` is the selection: what is served now, by class or by test. `--select` takes classes and tests by any part of their names,
also others than those of the selection when they are named in full. What none of the suites kafka-its* runs is in `left-out.txt`,
with the reason; a test of Kafka's jars that is neither there nor in a selection fails this suite.
"""
import re
import zipfile

from lib import java_tests
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.toolchain import CACHE, HERE, digest, kafka_libs, make_once, need, run as step, say

ITS = HERE / "suites/kafka-its"
CLIENT, VERSION = "Apache Kafka's integration tests (clients, tools, server)", "4.3.1"
LIMIT_S = 2700
OWN_BROKERS = True
PROTOCOL = "what kafka-clients 4.3.1 has in common with the broker"
FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx1g", "--add-opens", "java.base/java.lang=ALL-UNNAMED",
         "--add-opens", "java.base/java.util=ALL-UNNAMED", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
         "-Dkafka.cluster.test.repeat=1"]


def jars():
    pom = ITS / "pom.xml"

    def build(path):
        need("mvn", "fetch Apache Kafka's test jars (Debian: package maven)")
        say(f"fetching Apache Kafka {VERSION}'s test jars")
        step(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=test", f"-DoutputDirectory={path}"],
             "fetch Apache Kafka's test jars")

    return make_once(CACHE / f"kafka-its-{VERSION}-{digest(pom)}", build)


def class_path(newest=False):
    libs, sources = jars(), sorted((ITS / "java").rglob("*.java"))

    def build(path):
        need("javac", "build the stand-ins for Kafka's clusters (a JDK, version 17 or newer)")
        say("building the stand-ins for Kafka's clusters")
        step(["javac", "-proc:none", "-nowarn", "-Xlint:none", "-cp", f"{libs}/*", "-d", path, *sources], "build the stand-ins")
        unpack(libs, path)

    ours = make_once(CACHE / f"kafka-its-classes-{digest(libs.name, *sources)}", build)
    newer = sorted(kafka_libs().glob("kafka*.jar")) if newest else []
    return ":".join(str(path) for path in [ours, *newer, *sorted(libs.glob("*.jar"))])


def unpack(libs, path):
    """Connect's tests compile plug-ins from resources that they want to see as files."""
    for jar in libs.glob("connect-runtime-*-test.jar"):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(path, [name for name in archive.namelist() if name.startswith("test-plugins/")])


def setup():
    class_path(newest=True)


def chosen(select, list_):
    lines = [line for line in list_.read_text().splitlines() if line and not line.startswith("#")]
    if not select:
        return lines
    found = [line for line in lines if any(word in line for word in select)]
    return found + [word for word in select if word.count(".") > 1 and not any(word in line for line in lines)]


def run(context, list_=None):
    if not context.select and not list_:
        yield from inventory()
    yield from run_list(context, list_ or ITS / "tests.txt")


def inventory():
    """Each test that starts brokers is run by a suite, or left out for a reason."""
    run_here, whole = set(), set()
    for list_ in sorted((HERE / "suites").glob("kafka-its*/tests.txt")):
        for line in chosen([], list_):
            (run_here if "#" in line else whole).add(line.partition("[")[0])
    reasons = []
    for line in chosen([], ITS / "left-out.txt"):
        pattern, _, reason = line.partition(" -- ")
        reasons.append((pattern, re.compile(re.escape(pattern).replace(r"\*", ".*")), reason))
    used = set()
    for test in published():
        if test in run_here or test.partition("#")[0] in whole:
            continue
        pattern, reason = next(((p, reason) for p, expression, reason in reasons if expression.fullmatch(test)), (None, None))
        used.add(pattern)
        yield Outcome(test, NOT_APPLICABLE, reason) if pattern else Outcome(test, FAILED, "no suite runs it, and left-out.txt has no reason")
    for pattern, _, _ in reasons:
        if pattern not in used:
            yield Outcome(f"left-out.txt: {pattern}", FAILED, "leaves out no test")


def published():
    """The tests of the jars that start brokers, as `Class#method`."""
    api = "Lorg/apache/kafka/common/test/api"
    connect = "org.apache.kafka.connect.util.clusters"
    starters = {"org.apache.kafka.common.test.KafkaClusterTestKit", "org.apache.kafka.common.test.KafkaClusterTestKit$Builder",
                "org.apache.kafka.streams.integration.utils.EmbeddedKafkaCluster", f"{connect}.EmbeddedKafkaCluster",
                f"{connect}.EmbeddedConnect", f"{connect}.EmbeddedConnectCluster", f"{connect}.EmbeddedConnectStandalone"}
    plain = {"Lorg/junit/jupiter/api/Test;", "Lorg/junit/jupiter/params/ParameterizedTest;"}
    clustered = {f"{api}/{name};" for name in ("ClusterTest", "ClusterTests", "ClusterTemplate")}
    classes = java_tests.read(sorted(jars().glob("*-test.jar")))
    return java_tests.tests(classes, starters, {"kafka.server.QuorumTestHarness"}, plain, clustered)


def run_list(context, list_):
    """All tests in one JVM, and once more, in another, those that failed: on a busy machine Kafka's own limits are short."""
    newest = set(chosen([], ITS / "newest.txt"))
    tests = chosen(context.select, list_)
    yield from play_twice(context, [test for test in tests if test not in newest], "first", "second", False)
    yield from play_twice(context, [test for test in tests if test in newest], "newest", "newest-second", True)


def play_twice(context, tests, name, second, newest):
    if not tests:
        return
    finished = yield from play(context, tests, name, newest)
    again = [outcome.test for outcome in finished.values() if outcome.what == FAILED]
    if again:
        yield from play(context, again, second, newest)


def play(context, tests, name, newest):
    if context.bootstrap:
        yield Outcome("the suite", FAILED, "these tests start their own brokers; --against is not for them")
        return {}
    work = (context.work / name).resolve()
    work.mkdir()
    todo = work.with_suffix(".txt")
    todo.write_text("\n".join(tests) + "\n")
    command = ["java", *FLAGS, f"-Djava.io.tmpdir={work}", "-cp", class_path(newest), "floodmark.its.Runner", todo]
    node = "node-docker.sh" if context.image else "node.sh"
    environment = {"NODE_COMMAND": str(ITS / node), "IMAGE": context.image or "", "FLOODMARK": str(context.binary.resolve()),
                   "ITS_WORK": str(work)}
    finished = {}
    for line in context.lines(command, name, cwd=work, env=environment):
        parts = line.split("\t")
        if len(parts) == 4 and parts[0] in (PASSED, FAILED, "n/a"):
            finished[parts[1]] = Outcome(parts[1], parts[0], parts[3])
            yield finished[parts[1]]
    return finished
