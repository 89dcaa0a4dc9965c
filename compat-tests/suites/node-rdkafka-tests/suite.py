"""node-rdkafka's own tests that talk to a broker, which its package carries (`e2e`), run by mocha. A file is a process: what one
leaves behind is not for the next. On a machine with too much to do node-rdkafka hangs in `disconnect` now and then, on Kafka too;
and `groups` has died with SIGSEGV there, which was not seen on Kafka and whose cause is not known."""
import re

from lib import suites, toolchain
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import HERE

client = suites.load("node-rdkafka")
SOURCE = HERE / "suites/node-rdkafka-tests"
CLIENT, VERSION = "node-rdkafka, its tests (Node)", client.VERSION
LIMIT_S = 1500
FILE_LIMIT_S = 400
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}  # as in the broker that the tests bring along
RESULT = re.compile(r"^(not ok|ok) \d+ (.*?)( # SKIP -)?$")


def setup():
    client.place()
    toolchain.python()


def run(context):
    for line in context.lines([toolchain.python(), SOURCE / "topics.py", context.bootstrap], "topics"):
        print(line, flush=True)
    folder = client.place() / "node_modules/node-rdkafka"
    for file in sorted((folder / "e2e").glob("*.spec.js")):
        yield from play(context, folder, file)


def play(context, folder, file):
    name = file.name.removesuffix(".spec.js")
    command = [client.place() / "node_modules/.bin/mocha", "--exit", "--timeout", "120000", "--ui", "bdd", "--reporter", "tap", file]
    for word in context.select:
        command += ["--fgrep", word]
    told, failed, why = 0, None, ""
    try:
        for line in context.lines(command, name, cwd=folder, env={"KAFKA_HOST": context.bootstrap}, limit_s=FILE_LIMIT_S):
            result = RESULT.match(line)
            if failed and (result or line.startswith("#")):
                yield Outcome(failed, FAILED, why)
                failed = None
            if failed and line.strip() and not why:
                why = line.strip()
            if result:
                told += 1
                test = f"{name}: {result[2]}"
                if result[1] == "not ok":
                    failed, why = test, ""
                else:
                    yield Outcome(test, NOT_APPLICABLE, "the suite leaves it out") if result[3] else Outcome(test, PASSED)
    except TimeUp as late:
        yield Outcome(f"{name}: the time limit", FAILED, str(late))
        return
    if failed:
        yield Outcome(failed, FAILED, why)
    if not told and not context.select:
        yield Outcome(f"{name}: any test", FAILED, f"gave no result (exit {context.status})")
