"""kafka-python's own integration tests, from its source distribution, against a broker that runs already."""
import re
import shutil
import sys

from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import CACHE, HERE, digest, make_once, run as step, say

SOURCE = HERE / "suites/kafka-python"
CLIENT, VERSION = "kafka-python, its integration tests", "3.0.12"
LIMIT_S = 1500
SETTINGS = {"num.partitions": "4", "group.min.session.timeout.ms": "1000"}  # what its own fixture gives a broker
FIRST_ID = 0  # a test puts a partition on the broker 0
FILES = ["admin", "consumer", "producer"]  # the others are about TLS and SASL
RESULT = re.compile(r"^(test/integration/\S+?\.py::.+?) (PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b(?: \((.*)\))?")


def place():
    """A virtual environment with what the tests need, and the unpacked distribution in `sdist`."""
    requirements = SOURCE / "requirements.txt"

    def build(path):
        say(f"fetching kafka-python {VERSION}")
        step([sys.executable, "-m", "venv", path], "make a virtual environment (Debian: package python3-venv)")
        pip = [path / "bin/python", "-m", "pip"]
        step([*pip, "install", "-q", "-r", requirements], "install kafka-python and pytest")
        step([*pip, "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", path, f"kafka-python=={VERSION}"],
             "fetch kafka-python's tests")
        shutil.unpack_archive(path / f"kafka_python-{VERSION}.tar.gz", path)
        (path / f"kafka_python-{VERSION}").rename(path / "sdist")
        # What the distribution lacks: without the empty file Python takes its own package `test` instead.
        (path / "sdist/test/__init__.py").touch()
        shutil.copy(SOURCE / "service.py", path / "sdist/test")

    return make_once(CACHE / f"kafka-python-{digest(requirements, SOURCE / 'service.py', sys.version)}", build)


def setup():
    place()


def run(context):
    host, _, port = context.bootstrap.split(",")[0].rpartition(":")
    environment = {"KAFKA_URI": f"kafka://{host}:{port}", "KAFKA_VERSION": "4.3.0", "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": str(place() / "sdist"), "KAFKA_ROOT": str(context.work)}  # it must be there, and nothing is started from it
    for file in FILES:
        yield from play(context, file, environment)


def play(context, file, environment):
    command = [place() / "bin/python", "-m", "pytest", "-v", "-rfEs", "--tb=line", "--timeout=90", "-p", "no:cacheprovider",
               "-o", "addopts=", "-o", "log_level=WARNING", f"test/integration/test_{file}_integration.py"]
    if context.select:
        command += ["-k", " or ".join(context.select)]
    found, reasons, last = {}, {}, None
    try:
        for line in context.lines(command, file, cwd=place() / "sdist", env=environment, limit_s=600):
            match = RESULT.match(line)
            if match:
                last = match[1].removeprefix("test/integration/")
                found[last] = (match[2], match[3] or "")
            told = re.match(r"^(?:FAILED|ERROR) test/integration/(\S+?)(?: - (.*))?$", line)
            if told:
                reasons[told[1]] = told[2] or ""
    except TimeUp as late:
        yield Outcome(f"{file}: the time limit", FAILED, f"{late}; the last test that ended was {last}")
    for test, (word, why) in found.items():
        what = {"PASSED": PASSED, "XFAIL": NOT_APPLICABLE, "XPASS": PASSED, "SKIPPED": NOT_APPLICABLE}.get(word, FAILED)
        yield Outcome(test, what, "" if what == PASSED else reasons.get(test) or why or word.lower())
    if not found:
        yield Outcome(f"{file}: any test", FAILED, "gave no result")
