"""The frame of the suites: finds them, gives each its brokers and its time, and holds the outcomes against the expected ones.

A suite is `suites/NAME/suite.py` with:

    CLIENT, VERSION     for the table
    LIMIT_S             how long all of it may take
    OWN_BROKERS = True  where the suite starts the brokers itself, through a launcher; default False. With --docker in containers
    SETTINGS = {}       broker settings that the suite asks for; `{id}` in one is the broker's
    BROKERS = 1         how many it must have; by default it is run with one or three
    PORTS = []          the brokers' ports, where the suite leaves no choice; else any that are free
    ADVERTISED = []     other ports that the brokers advertise, behind which the suite puts something
    FIRST_ID = 1        the lowest id of a broker
    setup()             fetches and builds
    run(context)        yields an Outcome for each test
"""
import importlib.util
import os
import re
import signal
import subprocess
import threading
import time

from lib import apis, table, toolchain
from lib.broker import BrokerEnded
from lib.outcome import FAILED, Outcome, count, judge, parse_expected, write_result
from lib.servers import Docker, Outside, Processes, binary_command, docker_ports
from lib.toolchain import HERE

SUITES = HERE / "suites"
# What must not be in the log of a node: a panic, and what the stand-ins of kafka-its write when nobody has asked it to end.
BAD = {"no panic": re.compile(r"^.*panicked at.*$", re.MULTILINE), "no end unasked": re.compile(r"^=== node \d+ ended by itself.*$", re.MULTILINE)}


class TimeUp(Exception):
    """The suite did not end within its limit."""


def names():
    return sorted(path.parent.name for path in SUITES.glob("*/suite.py"))


def usual(options):
    """The suites of which there is a result, for then the list of what to expect is complete, and that the brokers of this run are
    for."""
    return [name for name in names() if (table.RESULTS / table.file_name(name, 1)).exists() and not obstacle(load(name), options)]


def obstacle(suite, options):
    """Why the brokers of this run are not for a suite; None if they are."""
    settled, ports = getattr(suite, "BROKERS", options.brokers), getattr(suite, "PORTS", None)
    if own_brokers(suite) and options.kafka:
        return "it starts brokers of its own, which are not Kafka's"
    if own_brokers(suite) and options.own_brokers:
        one = options.brokers == 1 or options.docker or options.against
        return None if one else "it starts as many brokers as each test asks for, whatever --brokers says"
    if options.against:
        host, _, port = options.against.split(",")[0].rpartition(":")
        if ports and not (host in ("localhost", "127.0.0.1") and port == str(ports[0])):
            return f"it looks for its broker at localhost:{ports[0]}"
        return None
    if settled != options.brokers and (options.docker or options.brokers != 1):
        return f"it has {settled} brokers, whatever --brokers says" + (" and the compose files have" if options.docker else "")
    if options.docker and getattr(suite, "ADVERTISED", None):
        return "it wants brokers that advertise other ports than their own, which the compose files do not"
    have = docker_ports(options.brokers) if options.docker else ports
    if ports and (len(ports) < settled or ports[:settled] != have[:settled]):
        return f"it looks for its broker at localhost:{ports[0]}: run it with --brokers 1"
    if options.docker and options.brokers > 1 and getattr(suite, "FIRST_ID", 1) != 1:
        return f"it wants brokers whose ids begin with {suite.FIRST_ID}; those of the compose file begin with 1"
    return None


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), SUITES / name / "suite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Context:
    """What a suite sees of its run."""

    def __init__(self, options, work, servers, deadline):
        self.select, self.work, self.deadline = options.select, work, deadline
        self.brokers, self.binary, self.options = options.brokers, options.binary, options
        self.image = options.image if options.docker else None
        self.servers = servers
        self.bootstrap = servers.bootstrap if servers else None

    @property
    def command(self):
        """What runs a broker like those of the run, given its properties file."""
        return command_of(self.options)

    def missing(self, part):
        """The APIs that the brokers do not serve and that a part of a script (`apis.NEEDS`) must have."""
        return apis.missing(self.servers.direct, part)

    def others(self, name, settings):
        """Brokers like those of the run, with other settings, for a part of a suite; None where the run does not start them itself."""
        if self.options.against or self.options.docker:
            return None
        return Processes(self.command, self.brokers, self.work / name, settings)

    def lines(self, command, name, cwd=None, env=None, limit_s=None):
        """The lines that a program prints, which also go to the log `name`. It and all that it started is ended at the limit."""
        end = min(self.deadline, time.monotonic() + limit_s) if limit_s else self.deadline
        process = subprocess.Popen([str(word) for word in command], cwd=cwd, env={**os.environ, **(env or {})}, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        late = threading.Event()

        def stop():
            late.set()
            kill_group(process)

        timer = threading.Timer(max(0, end - time.monotonic()), stop)
        timer.start()
        try:
            with (self.work / f"{name}.log").open("a") as log:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    yield line.rstrip("\n")
            process.wait()
        finally:
            timer.cancel()
            kill_group(process)
            process.stdout.close()
            process.wait()
        if late.is_set():
            raise TimeUp(f"{name} did not end within its limit; its log is {self.work / name}.log")
        self.status = process.returncode


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def command_of(options):
    return toolchain.kafka_launcher() if options.kafka else binary_command(options.binary)


def own_brokers(suite):
    return getattr(suite, "OWN_BROKERS", False)


def the_servers(suite, options, work):
    if own_brokers(suite) and options.own_brokers:
        return None
    settings, first_id = getattr(suite, "SETTINGS", {}), getattr(suite, "FIRST_ID", 1)
    if options.against:
        for name, value in settings.items():
            print(f"the brokers should have {name}={value}", flush=True)
        return Outside(options.against)
    if options.docker:
        return Docker(options.image, options.brokers, work, settings, first_id)
    return Processes(command_of(options), getattr(suite, "BROKERS", options.brokers), work, settings,
                     getattr(suite, "PORTS", None), getattr(suite, "ADVERTISED", None), first_id)


def run_suite(name, options, work):
    """The outcomes of one suite, and what befell the brokers under it."""
    suite = load(name)
    work.mkdir(parents=True)
    suite.setup()
    servers = the_servers(suite, options, work)
    outcomes = {}
    try:
        if servers:
            servers.start()
        context = Context(options, work, servers, time.monotonic() + suite.LIMIT_S)
        for outcome in suite.run(context):
            outcomes[outcome.test] = outcome
            print(f"{outcome.what:8}{outcome.test}" + (f" -- {outcome.reason[:300]}" if outcome.reason else ""), flush=True)
            if servers:
                servers.check()
        if not outcomes:
            outcomes["the suite"] = Outcome("the suite", FAILED, "ran no test")
        if servers:
            servers.stop()
    except TimeUp as late:
        outcomes["the time limit"] = Outcome("the time limit", FAILED, str(late))
    except BrokerEnded as ended:
        outcomes["the broker"] = Outcome("the broker", FAILED, str(ended).replace("\n", " | "))
    finally:
        protocol = servers.close() if servers else getattr(suite, "PROTOCOL", "")
    for log in sorted(work.rglob("*broker*.log")) + sorted(work.rglob("node-*.log")):
        for wanted, bad in BAD.items():
            for line in bad.findall(log.read_text(errors="replace")):
                outcomes[f"{wanted} in {log.name}"] = Outcome(f"{wanted} in {log.name}", FAILED, f"{line} (see {log})")
    return suite, list(outcomes.values()), protocol


def run_all(options, work):
    if options.setup:
        for name in options.suite:
            load(name).setup()
        return 0
    surprises, passed, failed, absent = [], 0, 0, 0
    recorded = not options.select and not options.unrecorded
    ours = recorded and not options.against and not options.docker and not options.kafka
    for name in options.suite:
        reason = obstacle(load(name), options)
        if reason:
            print(f"=== {name} is not applicable: {reason}", flush=True)
            continue
        print(f"=== {name}", flush=True)
        suite, outcomes, protocol = run_suite(name, options, work / name)
        list_ = SUITES / name / "expected.txt"
        expected = parse_expected(list_.read_text()) if list_.exists() else []
        judged, unexpected = judge(outcomes, expected, whole=not options.select and options.brokers == 1,
                                   one_broker=options.brokers == 1)
        brokers = "its own" if own_brokers(suite) else getattr(suite, "BROKERS", options.brokers)
        head = {"suite": name, "client": suite.CLIENT, "version": suite.VERSION, "brokers": brokers, "protocol": protocol}
        file = table.file_name(name, options.brokers)
        write_result(work / file, head, judged)
        if options.kafka and recorded:
            table.KAFKA.mkdir(parents=True, exist_ok=True)
            write_result(table.KAFKA / file, head, outcomes)
            table.write()
        if ours and not unexpected:
            table.RESULTS.mkdir(exist_ok=True)
            write_result(table.RESULTS / file, head, judged)
            table.write()
        passed, failed = passed + count(judged, "passed"), failed + count(judged, "failed")
        absent += count(judged, "n/a")
        surprises += [f"{name}: {surprise}" for surprise in unexpected]
    for surprise in surprises:
        print(f"not as expected: {surprise}")
    listed = failed - sum(" failed: " in surprise for surprise in surprises)
    print(f"{listed} failed as listed, {len(surprises)} not as expected")
    print(f"{passed} passed, {failed - listed} failed, {absent + listed} skipped", flush=True)
    return 1 if surprises or not passed else 0
