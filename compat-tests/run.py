#!/usr/bin/env python3
"""Runs the client checks against Floodmark, or against any broker that speaks Kafka's protocol. See README.md.

    compat-tests/run.py                                  every check against target/release/floodmark
    compat-tests/run.py clients --client kcat            one part, one client
    compat-tests/run.py clients --against kafka          the same checks against Apache Kafka, to test the checks
    compat-tests/run.py clients --bootstrap HOST:PORT    against a broker that runs already
"""
import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from exactly_once.programs import word_count
from lib import scenarios, toolchain, transactions  # the last adds its own to the scenarios
from lib.broker import Broker, BrokerEnded, External
from lib.driver import Driver, Hang
from lib.report import Report
from lib.toolchain import HERE, PROJECT, Missing

CLIENTS = {
    "java": lambda: toolchain.java("JavaDriver"),
    "confluent": lambda: [toolchain.python(), HERE / "clients/confluent.py"],
    "franz-go": lambda: [toolchain.franz_go()],
    "kcat": lambda: toolchain.kcat() and [sys.executable, HERE / "clients/kcat.py"],
    "tools": lambda: [sys.executable, HERE / "clients/tools.py", *toolchain.java("", heap="128m")[:-1], "--"],
}
# It starts slowly and takes more memory.
AGAINST_KAFKA = {"crash": ["--rounds", 4], "compaction": ["--rounds", 4], "abuse": ["--limits", 0]}
CLIENT_LIMIT_S = 900
PART_LIMIT_S = 900
# How often transactions are looked through for those whose time is over; 10 s by default.
QUICK_TIME_OUT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
PARTS = ["start", "full", "clients", "takeover", "abuse", "crash", "compaction", "exactly_once", "disks", "cluster", "churn"]
# What a foreign broker cannot be asked: how it is started, to keep a reserve, to be quick.
OWN_PARTS = {"start", "full", "disks", "cluster", "churn"}
# They run when they are named.
ON_REQUEST = {"disks"}
SEEDED = {"abuse", "crash", "compaction", "exactly_once", "disks", "cluster", "churn"}
IN_ROUNDS = {"crash", "compaction", "exactly_once", "disks", "cluster"}


class Everybody:
    """The client drivers of a run."""

    def __init__(self, commands, broker, logs):
        self.commands, self.broker, self.logs = commands, broker, logs
        self.finished = []
        self.drivers = []

    def another(self, name):
        driver = Driver(name, self.commands[name], self.broker.bootstrap, self.logs / f"{name}.log")
        self.drivers.append(driver)
        return driver

    def close(self):
        for driver in self.drivers:
            driver.close()


def run_clients(options, report, work):
    names = options.client or list(CLIENTS)
    commands = {name: CLIENTS[name]() for name in dict.fromkeys([*names, "confluent"])}
    broker = the_broker(options, work / "clients", QUICK_TIME_OUT)
    everybody = Everybody(commands, broker, work)
    try:
        helper = everybody.another("confluent")
        for name in names:
            run_client(name, helper, broker, everybody, report, options.scenario)
        if not options.scenario or "what_others_wrote_is_read" in options.scenario:
            for name in names:
                subject = scenarios.Subject(everybody.another(name), helper, broker, everybody)
                report.check(f"{name}: what_others_wrote_is_read", scenarios.what_others_wrote_is_read, subject)
                broker.check()
        broker.stop()
    finally:
        everybody.close()
        if isinstance(broker, Broker):
            broker.close(keep=True)


def run_client(name, helper, broker, everybody, report, chosen):
    driver = everybody.another(name)
    print(f"--- {name}: {driver.version}", flush=True)
    subject = scenarios.Subject(driver, helper, broker, everybody)
    begun = time.monotonic()
    for scenario in scenarios.LIST:
        title = scenario.__name__
        if title == "what_others_wrote_is_read" or (chosen and title not in chosen) or not scenario.needs <= driver.can:
            continue
        if time.monotonic() - begun > CLIENT_LIMIT_S:
            report.fail(name, f"the client took more than {CLIENT_LIMIT_S} s")
            break
        if not driver.alive():
            print(driver.log_tail(), flush=True)
            subject.driver = driver = everybody.another(name)
        report.check(f"{name}: {title}", scenario, subject)
        broker.check()
    everybody.finished.append(subject)


def command_of(options):
    """The command that runs one broker, given its properties file."""
    if options.against == "kafka":
        return toolchain.kafka_launcher()
    if options.launcher:
        return shlex.split(options.launcher)
    binary = Path(options.binary)
    if not binary.exists():
        raise Missing(f"{binary} is missing: build it with `cargo build --release`")
    return [binary.resolve(), "--config"]


def the_broker(options, work, settings=None):
    if options.bootstrap:
        return External(options.bootstrap)
    return Broker(command_of(options), work, settings).start()


def run_program(part):
    """A part that is a program of its own, run by the Python that has confluent-kafka; it prints its own checks."""

    def run(options, report, work):
        command = [str(word) for word in command_of(options)]
        program = [toolchain.python(), HERE / part / f"{part}.py", "--work", work / part, "--command", shlex.join(command)]
        if options.against == "kafka":
            program += AGAINST_KAFKA.get(part, [])
        if options.seed is not None and part in SEEDED:
            program += ["--seed", options.seed]
        if options.rounds is not None and part in IN_ROUNDS:
            program += ["--rounds", options.rounds]
        if options.members is not None and part == "churn":
            program += ["--members", options.members]
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        if part == "takeover":
            environment["KAFKA_COMMAND"] = shlex.join(str(word) for word in toolchain.kafka_launcher())
        process = subprocess.Popen([str(word) for word in program], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        limit_s = PART_LIMIT_S + 60 * (options.rounds or 0) + 30 * (options.members or 0)
        timer = threading.Timer(limit_s, process.terminate)
        timer.start()
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith("ok      "):
                    report.passed += 1
                elif line.startswith("FAILED  "):
                    report.failures.append(line[8:].split(" -- ")[0].strip())
            status = process.wait()
        except BaseException:
            process.terminate()  # it ends its broker
            process.wait()
            raise
        finally:
            timer.cancel()
        if status not in (0, 1):
            report.fail(part, f"the program ended with {status}; its limit is {limit_s} s")

    return run


def bench(options):
    command = shlex.join(str(word) for word in command_of(options))
    program = [toolchain.python(), HERE / "bench/bench.py", "--command", command]
    return subprocess.run([str(word) for word in program], env={**os.environ, "PYTHONPATH": str(HERE)}).returncode


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}, or bench; default all but disks and bench")
    parser.add_argument("--binary", default=PROJECT / "target/release/floodmark", help="the floodmark binary")
    parser.add_argument("--launcher", help="a command that runs a broker in the foreground, given its properties file")
    parser.add_argument("--against", choices=["floodmark", "kafka"], default="floodmark")
    parser.add_argument("--bootstrap", help="a broker that runs already (clients only)")
    parser.add_argument("--client", action="append", choices=list(CLIENTS))
    parser.add_argument("--scenario", action="append", choices=[s.__name__ for s in scenarios.LIST])
    parser.add_argument("--seed", type=int, help=f"for {', '.join(sorted(SEEDED))}; each prints the one that it took")
    parser.add_argument("--rounds", type=int, help=f"for {', '.join(sorted(IN_ROUNDS))}: how many kills or faults")
    parser.add_argument("--members", type=int, help="for churn: how many each group has; 10 by default")
    parser.add_argument("--setup", action="store_true", help="only fetch and build what the checks need")
    parser.add_argument("--keep", action="store_true", help="keep logs and data even if all passed")
    options = parser.parse_args()
    unknown = set(options.part) - {*PARTS, "bench"}
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}")
    return options


def main():
    options = arguments()
    report = Report()
    work = Path(tempfile.mkdtemp(prefix="floodmark-compat-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    parts = {part: run_clients if part == "clients" else run_program(part) for part in PARTS}
    try:
        if options.part == ["bench"]:
            return bench(options)
        if options.setup:
            for command in [*CLIENTS.values(), word_count, toolchain.faulty]:
                command()
            return 0
        foreign = options.against == "kafka" or options.launcher or options.bootstrap
        # Nor can one that runs already be killed.
        usual = ["clients"] if options.bootstrap else [
            part for part in PARTS if part not in ON_REQUEST and not (foreign and part in OWN_PARTS)]
        for part in options.part or usual:
            print(f"=== {part}", flush=True)
            try:
                parts[part](options, report, work)
            except BrokerEnded as ended:
                if not ended.told:
                    report.fail(part, ended)
            except Hang as hang:
                report.fail(part, hang)
        status = report.close()
    except Missing as missing:
        print(f"compat-tests: {missing}", file=sys.stderr, flush=True)
        return 1
    if status == 0 and not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    else:
        print(f"logs and data are in {work}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
