"""One script through many clients. Each client has a program of its own, `suites/CLIENT/`, that is run once for each part:

    PROGRAM BOOTSTRAP PART

and prints `passed CHECK`, `failed CHECK -- why` or `n/a CHECK -- what the client cannot do`, one a line. The parts, and what their
checks have in common, so that the programs stay alike:

| part | checks |
|---|---|
| admin | `create` three partitions and a setting; `describe` shows them; `configure` changes the setting; `grow` to five partitions; `delete` |
| produce | for each codec that the client has, `CODEC`: 100 records with keys and, where it can, headers are acknowledged and read back the same |
| consume | `from an offset` in the middle; `from a time`; `to the end`: nothing more comes |
| errors | `topic exists`, `invalid topic`, `unknown topic`, `out of range`, `too large`: the client reports Kafka's error |
| group | `two members` share four partitions and see all; `committed` offsets are where the next member begins; `list` shows the group |
| transaction | `commit` is read; `abort` is not read, but for who reads uncommitted; `offsets` in a transaction are the group's |

Applications, which are more than a client, print the same lines, and have parts of their own (spring, connect, mirror, vertx).
Parts whose APIs the broker does not offer in its ApiVersions answer are not run, and not applicable.
"""
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp

PARTS = ["admin", "produce", "consume", "errors", "group", "transaction"]
PART_LIMIT_S = 120
WORDS = {"passed": PASSED, "failed": FAILED, "n/a": NOT_APPLICABLE}


def run(context, command, parts=PARTS, env=None, cwd=None, limit_s=PART_LIMIT_S):
    for part in parts:
        if context.select and part not in context.select:
            continue
        missing = context.missing(part)
        if missing:
            yield Outcome(part, NOT_APPLICABLE, f"not served yet: {', '.join(missing)}")
            continue
        yield from play(context, command, part, env, cwd, limit_s)


def play(context, command, part, env, cwd, limit_s):
    told, last = 0, "nothing"
    try:
        for line in context.lines([*command, context.bootstrap, part], part, env=env, cwd=cwd, limit_s=limit_s):
            word, _, rest = line.partition(" ")
            check, _, why = rest.partition(" -- ")
            if word in WORDS and check:
                told += 1
                yield Outcome(f"{part}: {check}", WORDS[word], why)
            elif line.strip():
                last = line.strip()
        if not told or context.status != 0:
            yield Outcome(f"{part}: the program", FAILED, f"ended with {context.status}; last it said: {last[:300]}")
    except TimeUp as late:
        yield Outcome(f"{part}: the program", FAILED, f"{late}; last it said: {last[:300]}")
