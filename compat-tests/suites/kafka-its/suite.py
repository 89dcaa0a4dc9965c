"""Apache Kafka's own integration tests, which start their brokers inside the test's JVM. Here classes of ours with the names of
those that do so come first on the class path, and the tests get processes instead: `java/`. The tests themselves are Kafka's,
as Maven has them.

Some tests hold a broker against what Kafka's own classes know of settings and API versions. For these, in `newest.txt`, the classes
are those of the newest Kafka, which the broker is to equal, and only the tests are older.

`tests.txt` is the selection: what is served now. `--select` takes classes and tests by any part of their names, also others
than those of the selection when they are named in full.
"""
from lib.outcome import FAILED, PASSED, Outcome
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

    ours = make_once(CACHE / f"kafka-its-classes-{digest(libs.name, *sources)}", build)
    newer = sorted(kafka_libs().glob("kafka*.jar")) if newest else []
    return ":".join(str(path) for path in [ours, *newer, *sorted(libs.glob("*.jar"))])


def setup():
    class_path(newest=True)


def chosen(select, list_):
    lines = [line for line in list_.read_text().splitlines() if line and not line.startswith("#")]
    if not select:
        return lines
    found = [line for line in lines if any(word in line for word in select)]
    return found + [word for word in select if word.count(".") > 1 and not any(word in line for line in lines)]


def run(context, list_=ITS / "tests.txt"):
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
    work = context.work / name
    work.mkdir()
    todo = context.work / f"{name}.txt"
    todo.write_text("\n".join(tests) + "\n")
    command = ["java", *FLAGS, f"-Djava.io.tmpdir={work}", "-cp", class_path(newest), "floodmark.its.Runner", todo]
    node = "node-docker.sh" if context.image else "node.sh"
    environment = {"NODE_COMMAND": str(ITS / node), "IMAGE": context.image or "", "FLOODMARK": str(context.binary.resolve()),
                   "ITS_WORK": str(work)}
    finished = {}
    for line in context.lines(command, name, env=environment):
        parts = line.split("\t")
        if len(parts) == 4 and parts[0] in (PASSED, FAILED, "n/a"):
            finished[parts[1]] = Outcome(parts[1], parts[0], parts[3])
            yield finished[parts[1]]
    return finished
