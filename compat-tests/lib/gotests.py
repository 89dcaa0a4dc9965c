"""The tests that a Go module carries: built from its sources as the proxy has them, and run by the names of their functions."""
import re
import subprocess
from pathlib import Path

from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import CACHE, Missing, digest, make_once, need, run as step, say

RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)")
TEST = re.compile(r"^func (Test\w+)\(", re.MULTILINE)
WORDS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": NOT_APPLICABLE}


def binary(folder, package, *flags):
    """The program with the tests of `package`, which the go.mod in `folder` names with its version."""
    name = f"{folder.name.removesuffix('-tests')}-tests"

    def build(path):
        need("go", f"build the tests of {package} (Go 1.26 or newer)")
        say(f"building the tests of {package}")
        step(["go", "test", "-c", *flags, "-o", path, package], f"build the tests of {package}", cwd=folder)

    return make_once(CACHE / f"{name}-{digest(folder / 'go.mod', *flags)}", build)


def program(folder, package, name):
    """A program of a module that the go.mod in `folder` names with its version."""

    def build(path):
        need("go", f"build {name} (Go 1.26 or newer)")
        say(f"building {name}")
        step(["go", "build", "-o", path, package], f"build {name}", cwd=folder)

    return make_once(CACHE / f"{name}-{digest(folder / 'go.mod')}", build)


def sources(folder, package):
    """Where go has put the sources of `package`."""
    told = subprocess.run(["go", "list", "-f", "{{.Dir}}", package], cwd=folder, capture_output=True, text=True)
    if told.returncode != 0:
        raise Missing(f"go could not find {package}:\n{told.stderr[-2000:]}")
    return Path(told.stdout.strip())


def functions(files):
    """The tests in these files."""
    return sorted(test for file in files for test in TEST.findall(file.read_text()))


def play(context, command, tests, name, cwd, env, limit_s, rounds=1):
    """Runs these tests in one process, so often; a test has passed if it did each time."""
    command = [command, "-test.v", f"-test.timeout={limit_s}s", f"-test.count={rounds}", "-test.run", f"^({'|'.join(tests)})$"]
    told, last, late = {test: [] for test in tests}, "", ""
    why = dict.fromkeys(tests, "")  # the last line before the result that it does not simply pass
    try:
        for line in context.lines(command, name, cwd=cwd, env=env, limit_s=limit_s + 30):
            found = RESULT.match(line)
            if found and found[2] in told:
                told[found[2]].append(WORDS[found[1]])
                why[found[2]] = why[found[2]] if found[1] == "PASS" else last
            elif line.strip() and not line.startswith(("===", "---", "PASS", "FAIL")):
                last = line.strip()
    except TimeUp as up:
        late = str(up)
    for test in tests:
        yield judged(test, told[test], rounds, why[test] or late or last)


def play_one(context, command, test, cwd, env, limit_s):
    """One test in a process of its own, and once more if it has failed: some have limits that are short on a busy machine."""
    (outcome,) = play(context, command, [test], test, cwd, env, limit_s)
    if outcome.what == FAILED:
        (outcome,) = play(context, command, [test], f"{test}-again", cwd, env, limit_s)
    return outcome


def judged(test, told, rounds, last):
    if FAILED in told:
        return Outcome(test, FAILED, f"{told.count(FAILED)} of {rounds} times; {last}" if rounds > 1 else last)
    if len(told) < rounds:
        return Outcome(test, FAILED, f"gave {len(told)} of {rounds} results; last in its log: {last}")
    return Outcome(test, NOT_APPLICABLE, last) if NOT_APPLICABLE in told else Outcome(test, PASSED)
