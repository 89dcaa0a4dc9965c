"""Compaction, for real: Kafka's LogCompactionTester, and keyed producers whose broker is killed with SIGKILL in the middle of compactions
and started again, over and over.

Segments are small and the cleaner is eager, and slow where there is to be time to hit it. A round kills the broker as soon as a
segment is being made (`.cleaned`), or just before one of the renames by which it takes the place of others (`.swap`, `.deleted`), and
sometimes again just before one of those by which the next start brings that to its end. In the end every key has its last
acknowledged value, or none if that was a tombstone; whatever is there is at the offset that was acknowledged (judge.py); the same
holds of what a consumer has read along. The cleaner still works, and Kafka's kafka-dump-log reads what it has made.

What happens in which round comes from a seed, which is printed: `--seed N` repeats it.
"""
import collections
import random
import re
import subprocess
import time
import unittest

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import judge
import test_judge
from keyed import NOISE, PARTITIONS, Transactional, Watcher, Writer, create_topics, read_all
from lib import dump_log, toolchain
from lib.broker import Broker, BrokerEnded
from lib.faulty import RENAMES, Faulty, available
from lib.program import main
from lib.scenarios import CODECS, Failed, expect

MOMENT_LIMIT_S, GO_ON_LIMIT_S, CLEAN_LIMIT_S, TESTER_LIMIT_S = 60, 60, 90, 180
FEWEST = 400  # records that must be acknowledged between two kills
EAGER = {"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "2", "log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "500"}
TOPIC = {"cleanup.policy": "compact", "delete.retention.ms": "500", "file.delete.delay.ms": "500", "min.cleanable.dirty.ratio": "0",
         "index.interval.bytes": "1024", "segment.ms": "400", "segment.bytes": "1048576"}
RATE = "log.cleaner.io.max.bytes.per.second"
SLOWLY, AT_ONCE = "2000000", "1000000000"
MESSAGES, SEGMENTS = 200_000, 20


def alter(broker, kind, name, setting, value):
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def judge_bites():
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(test_judge).run(result)
    if not result.wasSuccessful() or not result.testsRun:
        raise Failed(f"{result.testsRun} tests, {result.failures + result.errors}")


class Tester:
    """Kafka's LogCompactionTester with a broker of its own; it takes its time, so it runs beside the rest."""

    def __init__(self, options):
        settings = {"log.roll.ms": "400", "log.segment.bytes": "1048576", "log.cleaner.min.cleanable.ratio": "0", "log.segment.delete.delay.ms": "500"}
        self.broker = Broker(options.command, options.work / "tester", {**EAGER, **settings})
        self.log, self.process = self.broker.work / "tester.log", None

    def begin(self):
        self.broker.start()
        command = toolchain.java("org.apache.kafka.tools.LogCompactionTester", heap="128m")
        command[1:1] = [f"-Djava.io.tmpdir={self.broker.work}"]
        command += ["--bootstrap-server", self.broker.bootstrap, "--messages", str(MESSAGES), "--percent-deletes", "20", "--compression-type", "lz4"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def passes(self):
        try:
            status = self.process.wait(TESTER_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"it did not end within {TESTER_LIMIT_S} s: {self.said()}") from None
        self.broker.check()
        if status != 0 or "Data verification is completed" not in self.said():
            raise Failed(f"it ended with {status}: {self.said()}")
        reduction = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", self.said())
        produced, consumed = map(int, reduction.groups())
        print(f"        LogCompactionTester: of {produced} records {consumed} were left", flush=True)
        if consumed > produced * 0.9:
            raise Failed("next to nothing was compacted")

    def what_is_gone_is_passed_over(self):
        """Many segments in a row of which one compaction has left nothing: a consumer goes over them, and is told of no error."""
        topic, held = "compacted-away", {**TOPIC, "segment.ms": "86400000", "min.compaction.lag.ms": "86400000"}
        create_topics(self.broker, [topic], held)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "log_level": 2})
        segments = lambda: sorted((self.broker.data / f"{topic}-0").glob("*.log"))
        number = 0
        while len(segments()) < SEGMENTS:
            for number in range(number + 1, number + 500):
                producer.produce(topic, f"{number} ".encode() + NOISE[:2000], f"key {number % 5}", 0)
            producer.flush(30)
        alter(self.broker, ConfigResource.Type.TOPIC, topic, "min.compaction.lag.ms", "0")
        deadline, log, errors = time.monotonic() + CLEAN_LIMIT_S, [], set()
        while not log or judge.doubled(log, int(segments()[-1].stem)):
            logs, more = read_all(self.broker, [topic])
            log, errors = logs[topic, 0], errors | more
            if time.monotonic() > deadline:
                raise Failed(f"it is not compacted after {CLEAN_LIMIT_S} s\n{self.broker.log_tail()}")
        no_errors(errors)
        expect(sorted(int(value.split(b" ")[0]) for _, _, value in log)[-5:], list(range(number - 4, number + 1)), "the last values")
        self.broker.stop()

    def said(self):
        return self.log.read_text(errors="replace")[-1500:]

    def close(self, keep):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.broker.close(keep)


class Rounds:
    """Kills and restarts. `faulty`: None where the broker cannot be killed at a certain call."""

    def __init__(self, broker, writers, dice, faulty):
        self.broker, self.writers, self.dice, self.faulty = broker, writers, dice, faulty
        self.left, self.moments, self.slowest_s = collections.Counter(), collections.Counter(), 0.0

    def files(self, suffix):
        return [path for directory in self.broker.data.glob("compacted-*") for path in directory.glob(f"*{suffix}")]

    def await_that(self, holds, limit_s, complaint):
        deadline = time.monotonic() + limit_s
        while not holds():
            self.broker.check()
            if time.monotonic() > deadline:
                raise Failed(f"{complaint} after {limit_s} s\n{self.broker.log_tail()}")
            time.sleep(0.002)

    def await_records(self):
        counts = {writer: writer.count for writer in self.writers}

        def have_come():
            ready = [writer.count - before for writer, before in counts.items()]
            return sum(ready) >= FEWEST and all(ready) or any(writer.errors for writer in self.writers)
        self.await_that(have_come, GO_ON_LIMIT_S, "not every producer has acknowledged records")

    def kill_while_cleaning(self):
        self.await_that(lambda: self.files(".cleaned"), MOMENT_LIMIT_S, "no segment is being compacted")
        time.sleep(self.dice.uniform(0, 0.02))
        self.broker.check()
        self.broker.kill()

    def kill_at_rename(self, pattern, skip):
        self.faulty.kill_at(RENAMES, pattern, skip)
        deadline = time.monotonic() + MOMENT_LIMIT_S
        while self.broker.process.poll() is None:
            if time.monotonic() > deadline:
                raise Failed(f"no file was renamed to or from {pattern} for {MOMENT_LIMIT_S} s\n{self.broker.log_tail()}")
            time.sleep(0.002)
        if not self.faulty.disarm():
            self.broker.check()
        self.broker.kill()

    def start(self):
        """Starts the broker; now and then it is killed just before a rename of its recovery, if there is one."""
        if self.faulty and self.dice.random() < 0.5:
            self.faulty.kill_at(RENAMES, self.dice.choice([".swap", ".deleted"]), self.dice.randrange(3))
            try:
                self.broker.start()
            except BrokerEnded:
                if not self.faulty.struck:
                    raise
            if self.faulty.disarm():
                self.broker.kill()
                self.moments["a rename of recovery"] += 1
        if self.broker.process is None:
            self.broker.start()
        self.slowest_s = max(self.slowest_s, self.broker.started_in_s)

    def run(self, rounds):
        for number in range(rounds):
            self.await_records()
            if self.faulty and number % 3:
                pattern, skip = self.dice.choice([".swap", ".cleaned", ".deleted"]), self.dice.randrange(12)
                self.kill_at_rename(pattern, skip)
                self.moments[f"a rename of {pattern}"] += 1
            else:
                self.kill_while_cleaning()
                self.moments["the making of a segment"] += 1
            for suffix in (".cleaned", ".swap", ".deleted"):
                self.left[suffix] += bool(self.files(suffix))
            self.start()
        alter(self.broker, ConfigResource.Type.BROKER, "1", RATE, AT_ONCE)
        self.await_that(self.tombstones_go, GO_ON_LIMIT_S, "no tombstone has gone")
        for writer in self.writers:
            writer.finish()
        print(f"        killed at {dict(self.moments)}; left behind in so many rounds {dict(self.left)}; {sum(w.count for w in self.writers)} "
              f"records acknowledged; slowest restart {self.slowest_s:.2f} s", flush=True)

    def tombstones_go(self):
        """Of every topic. They are seen to be old by one compaction, and left out by one that comes later: producers must go on until then."""
        deleted = {writer: [dict(partition) for partition in writer.acknowledged] for writer in self.writers}
        logs, _ = read_all(self.broker, [writer.topic for writer in self.writers])
        return all(sum(judge.vanished(acknowledged[p], logs[writer.topic, p]) for p in range(PARTITIONS)) for writer, acknowledged in deleted.items())

    def hit(self):
        wanted = [".cleaned", *([".swap"] if self.faulty else [])]
        for suffix in wanted:
            if not self.left[suffix]:
                raise Failed(f"no kill has left a file {suffix}, so that this has shown nothing")


def compacted_at_last(rounds, topics):
    """Every partition, to its active segment: the cleaner goes on after all that was done to it. Returns what is there then, and the
    errors that a consumer was told of meanwhile."""
    active = lambda topic, p: max(int(path.stem) for path in (rounds.broker.data / f"{topic}-{p}").glob("*.log"))
    deadline, errors = time.monotonic() + CLEAN_LIMIT_S, set()
    while True:
        bounds = {(topic, p): active(topic, p) for topic in topics for p in range(PARTITIONS)}
        logs, more = read_all(rounds.broker, topics)
        errors |= more
        left = {where: len(judge.doubled(log, bounds[where])) for where, log in logs.items()}
        if not any(left.values()):
            return logs, errors
        if time.monotonic() > deadline:
            raise Failed(f"keys are there more than once after {CLEAN_LIMIT_S} s: {left}\n{rounds.broker.log_tail()}")
        time.sleep(0.2)


def no_errors(errors):
    if errors:
        raise Failed("\n".join([f"{len(errors)} errors", *(f"    {error}" for error in sorted(errors)[:20])]))


def no_complaint(writer, logs, judged):
    found = []
    for partition in range(PARTITIONS):
        found += [f"partition {partition}: {kind}: {text}" for kind, text in judged(writer.acknowledged[partition], logs[writer.topic, partition])]
    if found:
        raise Failed("\n".join([f"{writer.topic}: {len(found)} complaints", *(f"    {text}" for text in found[:20])]))


def dumped(broker, writers, logs):
    """kafka-dump-log finds what a consumer has found, but for what was compacted since; in the topic of transactions markers and what was
    aborted, too."""
    directories = {where: broker.data / f"{where[0]}-{where[1]}" for where in logs}
    found = dump_log.dump(list(directories.values()), broker.work / "dump.txt", gaps=True)
    there = {where: set(found[directory]) for where, directory in directories.items()}
    left = {where: [record for record in log if record[0] in there[where]] for where, log in logs.items()}
    for writer in writers:
        for partition in range(PARTITIONS):
            where = (writer.topic, partition)
            offsets = found[directories[where]]
            expect(offsets, sorted(set(offsets)), f"{where}: the offsets in the dump")
            if not isinstance(writer, Transactional):
                expect(sorted(set(offsets) - {offset for offset, _, _ in logs[where]}), [], f"{where}: what is in the dump and was not read")
        no_complaint(writer, left, judge.complaints)
    print(f"        kafka-dump-log decoded {sum(map(len, found.values()))} records", flush=True)


def verified(command, broker):
    done = subprocess.run([*command[:-1], "storage", "verify", "--config", str(broker.config)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failed(f"floodmark storage verify ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")


def compaction(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.rounds} kills", flush=True)
    report.check("compaction: the judge finds each fault in made-up logs", judge_bites)
    program, why_not = available(options.work)
    faulty = Faulty(program, options.work / "control") if program else None
    if not faulty:
        print(f"        compaction: kills at renames are not run, for calls cannot be caught here: {why_not}", flush=True)
    tester = Tester(options)
    broker = Broker(faulty.command(options.command) if faulty else options.command, options.work / "broker", {**EAGER, RATE: SLOWLY})
    watcher = None
    try:
        tester.begin()
        broker.start()
        writers = [Writer(broker, codec, options.seed + n, **{"compression.type": codec}) for n, codec in enumerate(CODECS)]
        writers.append(Transactional(broker, "transactions", options.seed))
        topics = [writer.topic for writer in writers]
        create_topics(broker, topics, TOPIC)
        watcher = Watcher(broker, topics)
        for writer in writers:
            writer.thread.start()
        rounds, found = Rounds(broker, writers, dice, faulty), []
        report.check("compaction: producers go on over every kill", rounds.run, options.rounds)
        if report.failures:
            return
        report.check("compaction: kills came in the middle of compactions", rounds.hit)
        report.check("compaction: every log is compacted in the end", lambda: found.extend(compacted_at_last(rounds, topics)))
        if not found:
            return
        logs, errors = found
        last = {where: log[-1][0] for where, log in logs.items()}
        report.check("compaction: who reads along comes to the end", watcher.catch_up, last)
        report.check("compaction: consumers are told of no error", no_errors, errors | watcher.errors)
        for writer in writers:
            report.check(f"compaction: {writer.topic}: last values are there, at their offsets", no_complaint, writer, logs, judge.complaints)
            report.check(f"compaction: {writer.topic}: so they were for who read along", no_complaint, writer, watcher.seen, judge.read_along)
        broker.stop()
        report.check("compaction: kafka-dump-log --deep-iteration reads what was compacted", dumped, broker, writers, logs)
        if options.command[-1] == "--config":
            report.check("compaction: storage verify finds nothing wrong", verified, options.command, broker)
        report.check("compaction: Kafka's LogCompactionTester passes", tester.passes)
        report.check("compaction: a consumer passes over segments of which nothing is left", tester.what_is_gone_is_passed_over)
    finally:
        if watcher:
            watcher.close()
        tester.close(keep=bool(report.failures))
        broker.close(keep=bool(report.failures))


if __name__ == "__main__":
    main(__doc__, compaction, rounds=12, seed=random.SystemRandom().randrange(1_000_000))
