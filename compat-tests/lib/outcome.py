"""What came out of a suite, and what was expected to: the lists and the result files, as text.

A list (`expected.txt` beside a suite) has one line for each test that does not simply pass, with the reason:

    failed  ID -- what is missing or wrong, and in which issue it is to be done
    n/a     PATTERN -- why no broker but Kafka's own, or no broker that is set up like this, can be asked for it

A test that fails without being listed has got worse. One that is listed as failed and passes has got better: its line must go.
So must a line that no test matches. An ID that ends in [tests of ...] is no special case; patterns know * and ? alone.
"""
import re
from dataclasses import dataclass

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "n/a"


@dataclass
class Outcome:
    test: str
    what: str
    reason: str = ""


@dataclass
class Line:
    what: str
    pattern: str
    reason: str
    used: bool = False

    def __post_init__(self):
        parts = re.split(r"([*?])", self.pattern)
        self.expression = re.compile("".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in parts))

    def matches(self, test):
        return self.expression.fullmatch(test) is not None


def parse_expected(text):
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        what, _, rest = line.partition(" ")
        test, dashes, reason = rest.strip().partition(" -- ")
        if what not in (FAILED, NOT_APPLICABLE) or not dashes or not reason.strip():
            raise ValueError(f"line {number} of the expected results is not 'failed|n/a TEST -- REASON': {line}")
        lines.append(Line(what, test.strip(), reason.strip()))
    return lines


def judge(outcomes, expected, whole, one_broker=True):
    """The outcomes with what the list says of them, and what is not as expected. `whole`: every test of the suite has run. What
    is not applicable with one broker may well pass with three."""
    judged, surprises = [], []
    for outcome in outcomes:
        line = next((line for line in expected if line.matches(outcome.test)), None)
        if line:
            line.used = True
        if line and line.what == NOT_APPLICABLE and outcome.what != PASSED:
            outcome = Outcome(outcome.test, NOT_APPLICABLE, line.reason)
        elif line and line.what == FAILED and outcome.what == FAILED:
            outcome = Outcome(outcome.test, FAILED, line.reason)
        elif line and outcome.what == PASSED and "*" not in line.pattern and (one_broker or line.what == FAILED):
            surprises.append(f"{outcome.test} passes: take it off the list")
        elif outcome.what == FAILED:
            surprises.append(f"{outcome.test} failed: {outcome.reason}")
        judged.append(outcome)
    for line in expected:
        bettered = [o for o in judged if line.matches(o.test)]
        if whole and not line.used:
            surprises.append(f"{line.pattern} is on the list, and no test has that name")
        elif "*" in line.pattern and bettered and all(o.what == PASSED for o in bettered) and (one_broker or line.what == FAILED):
            surprises.append(f"{line.pattern}: all of it passes: take it off the list")
    return judged, surprises


def count(outcomes, what):
    return sum(outcome.what == what for outcome in outcomes)


def write_result(path, head, outcomes):
    lines = [f"{name}: {value}" for name, value in head.items()] + [""]
    for outcome in sorted(outcomes, key=lambda o: o.test):
        lines.append(f"{outcome.what}  {outcome.test}" + (f" -- {outcome.reason}" if outcome.reason else ""))
    path.write_text("\n".join(lines) + "\n")


def read_result(path):
    head, _, body = path.read_text().partition("\n\n")
    outcomes = []
    for line in body.splitlines():
        what, _, rest = line.partition("  ")
        test, _, reason = rest.partition(" -- ")
        outcomes.append(Outcome(test, what, reason))
    return dict(line.split(": ", 1) for line in head.splitlines()), outcomes
