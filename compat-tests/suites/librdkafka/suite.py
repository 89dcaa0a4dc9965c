"""librdkafka's own test suite, one process for each test, in its quick mode. Its sources come inside a crate.

Left out: tests that librdkafka itself marks as local (they have no broker, or one of their own inside the process) or manual.
"""
import json
import os
import re
import shutil

from lib import crates
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import CACHE, HERE, digest, make_once, need, run as step, say

SOURCE = HERE / "suites/librdkafka"
CLIENT, VERSION = "librdkafka's test suite", "2.12.1"
LIMIT_S = 2700
TEST_LIMIT_S = 150
SETTINGS = {"num.partitions": "4"}
MACRO = re.compile(r"^ {4}_TEST\(\s*(\d{4}_\w+),\s*([^,)]+(?:\([^)]*\))?)", re.MULTILINE)
NEEDS = ("group", "transaction")


def sources():
    """librdkafka as the crate carries it, built."""

    def build(path):
        for tool in ("cargo", "make", "cc", "c++", "bash"):
            need(tool, "fetch and build librdkafka's tests")
        say(f"fetching librdkafka {VERSION}")
        shutil.copytree(os.path.join(crates.source(SOURCE, "rdkafka-sys"), "librdkafka"), path)
        say(f"building librdkafka {VERSION} and its tests")
        step(["./configure", "--disable-gssapi", "--disable-curl"], "configure librdkafka", cwd=path)
        step(["make", "-j2", "libs"], "build librdkafka", cwd=path)
        step(["make", "-j2", "-C", "tests", "test-runner"], "build librdkafka's tests", cwd=path)

    return make_once(CACHE / f"librdkafka-{VERSION}-{digest(SOURCE / 'Cargo.toml')}", build)


def setup():
    sources()


def tests():
    text = (sources() / "tests/test.c").read_text()
    return [name for name, flags in MACRO.findall(text) if "LOCAL" not in flags and "MANUAL" not in flags]


def listed(kind):
    return set((SOURCE / f"{kind}.txt").read_text().split())


def run(context, environment=None, group="group"):
    """`environment` is what the tests find in theirs, `group` what those with groups need of the broker."""
    served = {part: context.missing(group if part == "group" else part) for part in NEEDS}
    wants = {part: listed(f"needs-{part}") for part in NEEDS}
    for test in tests():
        if context.select and not any(word in test for word in context.select):
            continue
        missing = next((served[part] for part in NEEDS if test in wants[part] and served[part]), None)
        if missing:
            yield Outcome(test, NOT_APPLICABLE, f"not served yet: {', '.join(missing)}")
        else:
            yield play(context, test, environment or {})


def play(context, test, more):
    folder = context.work / test
    folder.mkdir()
    config, report = folder / "test.conf", folder / "report.json"
    config.write_text(f"metadata.broker.list={context.bootstrap}\ntest.topic.random=true\ntest.timeout.multiplier=3\n")
    environment = {"RDKAFKA_TEST_CONF": str(config), "TEST_REPORT": str(report), "TESTS": test, "TEST_KAFKA_VERSION": "4.1.0",
                   "LD_LIBRARY_PATH": f"{sources() / 'src'}:{sources() / 'src-cpp'}", **more}
    reason = ""
    try:
        for line in context.lines([sources() / "tests/test-runner", "-L", "-Q", "-p1"], test, cwd=sources() / "tests",
                                  env=environment, limit_s=TEST_LIMIT_S):
            if "TEST FAILURE" in line or "failed" in line.lower() and not reason:
                reason = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    except TimeUp as late:
        return Outcome(test, FAILED, str(late))
    try:
        state = json.loads(report.read_text())["tests"][test]["state"]
    except (OSError, ValueError, KeyError):
        return Outcome(test, FAILED, f"no report (exit {context.status}): {reason}")
    what = {"PASSED": PASSED, "SKIPPED": NOT_APPLICABLE}.get(state, FAILED)
    return Outcome(test, what, "" if what == PASSED else reason or f"the suite says {state}")
