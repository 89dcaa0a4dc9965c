"""COMPATIBILITY.md, made from the result files."""
from collections import Counter

from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, count, read_result
from lib.toolchain import HERE, PROJECT

RESULTS = HERE / "results"
KAFKA = RESULTS / "kafka"
HEAD = """# Compatibility

Made by `compat-tests/run` from the files in `compat-tests/results`; do not edit. Other people's suites run unmodified, as the
package registries serve them; scripts of ours go through other people's clients. What a suite is, and why some of its tests
are not run at all, is in [compat-tests/README.md](compat-tests/README.md). "On Kafka" is what the same suite gave on Apache Kafka
4.4 here; Kafka's own tests were not run on Kafka that way. Protocol versions are those that the client really
used, read off its connections.

| suite | client | version | brokers | run | passed | failed | not applicable | on Kafka | protocol versions |
|---|---|---|---|---|---|---|---|---|---|
"""


def file_name(suite, brokers):
    return f"{suite}.txt" if brokers == 1 else f"{suite}-{brokers}.txt"


def unrecorded():
    return [path.parent.name for path in sorted((HERE / "suites").glob("*/suite.py"))
            if not (RESULTS / file_name(path.parent.name, 1)).exists()]


def cell(text):
    return text.replace("|", "\\|") or "-"


def on_kafka(file):
    if not (KAFKA / file).exists():
        return "-"
    _, outcomes = read_result(KAFKA / file)
    passed, failed = count(outcomes, PASSED), count(outcomes, FAILED)
    return f"{passed} of {passed + failed}"


def write():
    rows, details = [], []
    for path in sorted(RESULTS.glob("*.txt")):
        head, outcomes = read_result(path)
        passed, failed, absent = (count(outcomes, what) for what in (PASSED, FAILED, NOT_APPLICABLE))
        rows.append(f"| {head['suite']} | {cell(head['client'])} | {cell(head['version'])} | {head['brokers']} | {passed + failed} "
                    f"| {passed} | {failed} | {absent} | {on_kafka(path.name)} | {cell(head.get('protocol', ''))} |")
        lines = [f"- failed: `{o.test}`: {o.reason}" for o in outcomes if o.what == FAILED]
        reasons = Counter(o.reason for o in outcomes if o.what == NOT_APPLICABLE)
        lines += [f"- not applicable, {number}: {reason}" for reason, number in sorted(reasons.items())]
        if lines:
            details.append(f"## {head['suite']}, {head['brokers']} broker(s)\n\n" + "\n".join(lines) + "\n")
    absent = unrecorded()
    missing = "Not recorded yet, for what to expect of them is not written down in full: " + ", ".join(absent) + ".\n\n" if absent else ""
    (PROJECT / "COMPATIBILITY.md").write_text(HEAD + "\n".join(rows) + "\n\n" + missing + "\n".join(details))
