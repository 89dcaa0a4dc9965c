"""librdkafka's own test suite, one process for each number that tests have, in its quick mode. Its sources come inside a crate.

Left out: tests that librdkafka itself marks as local (they have no broker, or one of their own inside the process) or manual.
Those of its scenario `noautocreate` get brokers of their own that create no topics. The test of the admin API ends with its first
part that fails, so its parts are run one by one. What the tests call of an installed Kafka is there for them, with Kafka's jars.
"""
import json
import os
import re
import shutil

from lib import crates, toolchain
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import CACHE, HERE, digest, make_once, need, run as step, say

SOURCE = HERE / "suites/librdkafka"
CLIENT, VERSION = "librdkafka's test suite", "2.12.1"
LIMIT_S = 2700
TEST_LIMIT_S = 200
SETTINGS = {"num.partitions": "4", "broker.rack": "RACK{id}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
NO_AUTO_CREATE = "noautocreate"
ADMIN = "0081_admin"
WHOLE = "0082_fetch_max_bytes"  # in quick mode it does nothing, and is quick without it
NEEDS = ("group", "transaction")
SCRIPTS = {"kafka-topics.sh": '{java} -cp "{libs}/*" org.apache.kafka.tools.TopicCommand',
           "kafka-acls.sh": '{java} -cp "{libs}/*" org.apache.kafka.tools.AclCommand',
           "kafka-run-class.sh": '{java} -cp "$CLASSPATH:{libs}/*"'}
SKIPPING = re.compile(r"\[(\d{4}_\w+)\s*/.*?SKIPPING TEST: (.*?)(?:\[\d{4}_|$)")
FAILING = re.compile(r'### Test "(\d{4}_\w+)')  # the next line says why
PART = re.compile(r"\[ (do_test_\w+):\d+.*?: (PASS|SKIP|FAIL)\b(?:: (.*?) \])?")


def installed_kafka():
    """Kafka's scripts and jars, as an installed Kafka has them, that the tests call."""
    libs = toolchain.kafka_libs()

    def build(path):
        (path / "bin").mkdir(parents=True)
        (path / "libs").symlink_to(libs)
        for name, command in SCRIPTS.items():
            script = path / "bin" / name
            words = command.format(java="java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC", libs=libs)
            script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            script.chmod(0o755)

    return make_once(CACHE / f"kafka-installed-{digest(libs.name, *SCRIPTS.values())}", build)


def sources():
    """librdkafka as the crate carries it, built."""
    kafka = installed_kafka()

    def build(path):
        for tool in ("cargo", "make", "cc", "c++", "bash", "javac"):
            need(tool, "fetch and build librdkafka's tests")
        toolchain.apt_header("rapidjson-dev", "rapidjson/schema.h")
        say(f"fetching librdkafka {VERSION}")
        shutil.copytree(os.path.join(crates.source(SOURCE, "rdkafka-sys"), "librdkafka"), path)
        say(f"building librdkafka {VERSION} and its tests")
        step(["./configure", "--disable-gssapi", "--disable-curl"], "configure librdkafka", cwd=path)
        step(["make", "-j2", "libs"], "build librdkafka", cwd=path)
        step(["make", "-j2", "-C", "tests", "test-runner"], "build librdkafka's tests", cwd=path)
        step(["make", "-C", "tests/java", f"KAFKA_PATH={kafka}"], "build the Java programs of librdkafka's tests", cwd=path)
        (path / "tests/java/run-class.sh").chmod(0o755)

    return make_once(CACHE / f"librdkafka-{VERSION}-{digest(SOURCE / 'Cargo.toml', kafka.name, 'rapidjson')}", build)


def setup():
    sources()


def tests():
    """The tests by scenario, and in it by number: whoever asks the test runner for one gets all that have its number."""
    found = {}
    for entry in re.split(r"^ {4}_TEST\(", (sources() / "tests/test.c").read_text(), flags=re.MULTILINE)[1:]:
        name, flags = (word.strip() for word in re.split(r"[,)]", entry)[:2])
        scenario = NO_AUTO_CREATE if f'.scenario = "{NO_AUTO_CREATE}"' in entry else "default"
        if "LOCAL" not in flags and "MANUAL" not in flags:
            found.setdefault(scenario, {}).setdefault(name[:4], []).append(name)
    return found


def parts(text):
    """The parts of the admin test: the functions that begin one."""
    functions = re.split(r"^static void\s+(do_test_\w+)\(", text, flags=re.MULTILINE)[1:]
    return [name for name, body in zip(functions[::2], functions[1::2]) if "SUB_TEST" in body]


def listed(kind):
    return set((SOURCE / f"{kind}.txt").read_text().split())


def run(context, environment=None, group="group"):
    """`environment` is what the tests find in theirs, `group` what those with groups need of the broker."""
    environment = environment or {}
    served = {part: context.missing(group if part == "group" else part) for part in NEEDS}
    wants = {part: listed(f"needs-{part}") for part in NEEDS}
    by_scenario = tests()
    for number, names in by_scenario["default"].items():
        names = [name for name in names if chosen(context, name)]
        missing = next((served[part] for part in NEEDS if wants[part].intersection(names) and served[part]), None)
        if names == [ADMIN]:
            yield from play_admin(context, environment)
        elif missing:
            for name in names:
                yield Outcome(name, NOT_APPLICABLE, f"not served yet: {', '.join(missing)}")
        elif names:
            yield from play(context, context.bootstrap, number, names, environment)
    yield from run_without_auto_create(context, by_scenario[NO_AUTO_CREATE], environment)


def chosen(context, name):
    return not context.select or any(word in name for word in context.select)


def run_without_auto_create(context, numbers, environment):
    numbers = {number: [name for name in names if chosen(context, name)] for number, names in numbers.items()}
    if not any(numbers.values()):
        return
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    servers = context.others(NO_AUTO_CREATE, settings)
    if servers is None:
        for name in sum(numbers.values(), []):
            yield Outcome(name, NOT_APPLICABLE, "wants brokers with auto.create.topics.enable=false; those of this run are as they are")
        return
    try:
        servers.start()
        for number, names in numbers.items():
            if names:
                yield from play(context, servers.bootstrap, number, names, {**environment, "TEST_SCENARIO": NO_AUTO_CREATE})
                servers.check()
        servers.stop()
    finally:
        servers.close()


def play_admin(context, environment):
    for part in parts((sources() / "tests/0081-admin.c").read_text()):
        told = {"state": None, "why": ""}
        (outcome,) = play(context, context.bootstrap, ADMIN[:4], [ADMIN], {**environment, "SUBTESTS": f"{part}:"}, f"{ADMIN}-{part}", told)
        name = f"{ADMIN}: {part.removeprefix('do_test_')}"
        if outcome.what == PASSED and told["state"] != "PASS":
            yield Outcome(name, NOT_APPLICABLE, told["why"] or "left out with this group protocol")
        else:
            yield Outcome(name, outcome.what, outcome.reason)


def play(context, bootstrap, number, names, more, folder=None, part=None):
    folder = context.work / (folder or names[0])
    folder.mkdir()
    config, report = folder / "test.conf", folder / "report.json"
    config.write_text(f"metadata.broker.list={bootstrap}\ntest.topic.random=true\ntest.timeout.multiplier=3\n")
    environment = {"RDKAFKA_TEST_CONF": str(config), "TEST_REPORT": str(report), "TESTS": number, "TEST_KAFKA_VERSION": "4.1.0",
                   "KAFKA_PATH": str(installed_kafka()), "BROKERS": bootstrap,
                   "LD_LIBRARY_PATH": f"{sources() / 'src'}:{sources() / 'src-cpp'}", **more}
    quick = [] if names == [WHOLE] else ["-Q"]
    failing, failed, skipped, late = None, {}, {}, ""
    try:
        for line in context.lines([sources() / "tests/test-runner", "-L", *quick, "-p1"], folder.name, cwd=sources() / "tests",
                                  env=environment, limit_s=TEST_LIMIT_S):
            line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
            if failing:
                failed.setdefault(failing[1], line)
            failing, skip, sub = FAILING.match(line), SKIPPING.match(line), PART.search(line)
            if skip:
                skipped[skip[1]] = skip[2]
            if sub and part is not None and part["state"] != "PASS":
                part.update(state=sub[2], why=sub[3] or "")
    except TimeUp as up:
        late = str(up)
    try:
        told = json.loads(report.read_text())["tests"]
    except (OSError, ValueError, KeyError):
        told = {}
    for name in names:
        state = told.get(name, {}).get("state")
        why = failed.get(name, "")
        if state is None:
            yield Outcome(name, FAILED, late or f"no report (exit {context.status}): {why}")
        elif state == "SKIPPED":
            yield Outcome(name, NOT_APPLICABLE, skipped.get(name, "the suite says SKIPPED"))
        else:
            yield Outcome(name, PASSED) if state == "PASSED" else Outcome(name, FAILED, why or f"the suite says {state}")
