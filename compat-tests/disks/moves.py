"""Moves between the directories of one broker (kafka-reassign-partitions with `log_dirs`) that are hit by SIGKILL: some are slowed down so
that they are under way then, others are killed just before one of the renames by which the copy takes the place of the log.

In the end every acknowledged record must be there once and in order, as in the crash test, and every partition must lie in one directory.
"""
import collections
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

sys.path.append(str(Path(__file__).resolve().parent.parent / "crash"))
from crash import PARTITIONS, Watcher, Writer, create_topics, kill_while_starting, verify, verify_watcher
from lib import toolchain
from lib.broker import Broker
from lib.faulty import RENAMES, Faulty
from lib.scenarios import CODECS, Failed, expect

MOMENT_LIMIT_S, DONE_LIMIT_S = 60, 90
SLOW, FAST = 50_000, 1_000_000_000  # bytes per second
FEWEST = 300  # records that must be acknowledged before the next moves


class Moves:
    def __init__(self, options, dice, program):
        self.dice, self.faulty = dice, Faulty(program, options.work / "moves-control") if program else None
        self.directories = [options.work / "moves" / name for name in ("one", "two")]
        self.broker = Broker(self.faulty.command(options.command) if program else options.command, options.work / "moves", {
            "log.dirs": ",".join(map(str, self.directories)), "log.segment.bytes": "1048576", "log.segment.delete.delay.ms": "500",
            "num.replica.alter.log.dirs.threads": "4"})
        self.writers = [Writer(self.broker, codec, options.seed + n, **{"enable.idempotence": True, "compression.type": codec})
                        for n, codec in enumerate(CODECS[:3])]
        self.topics = [writer.topic for writer in self.writers]
        self.watcher = None
        self.running, self.moments, self.left = threading.Event(), collections.Counter(), 0
        self.partitions = [(topic, p) for topic in self.topics for p in range(PARTITIONS)]

    def begin(self):
        self.broker.start()
        create_topics(self.broker, self.topics)
        self.watcher = Watcher(self.broker, self.topics)

    def where(self):
        """By partition, the directories in which it lies."""
        return {(topic, p): [d for d in self.directories if (d / f"{topic}-{p}").is_dir()] for topic, p in self.partitions}

    def leftovers(self):
        """What else is there of partitions: copies, and what is about to be removed."""
        return sorted(path.name for d in self.directories for path in d.iterdir() if path.name.endswith(("-future", "-delete", "-stray")))

    def copies(self):
        return [path for d in self.directories for path in d.glob("*-future")]

    def under_way(self):
        """Something has been copied that is not whole yet."""
        return [path for path in self.copies() if any(log.stat().st_size for log in existing(path))]

    def reassign(self, targets, rate):
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": p, "replicas": [1], "log_dirs": [str(target)]}
                                             for (topic, p), target in sorted(targets.items())]}
        self.plan = self.broker.work / "plan.json"
        self.plan.write_text(json.dumps(plan))
        said = self.tool("--execute", "--replica-alter-log-dirs-throttle", str(rate))
        if said.count("Successfully started moving log directory") < len(targets):
            raise Failed(f"kafka-reassign-partitions says: {said[-1500:]}")

    def tool(self, *arguments):
        command = toolchain.java("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", heap="128m")
        command += ["--bootstrap-server", self.broker.bootstrap, "--reassignment-json-file", self.plan, *arguments]
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
        if done.returncode != 0:
            raise Failed(f"kafka-reassign-partitions ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        return done.stdout + done.stderr

    def others(self, partitions):
        """For each partition the directory in which it is not."""
        where = self.where()
        return {of: next(d for d in self.directories if where[of] != [d]) for of in partitions}

    def await_that(self, holds, limit_s, complaint):
        deadline = time.monotonic() + limit_s
        while not holds():
            if not (self.faulty and self.faulty.struck):
                self.broker.check()
            if time.monotonic() > deadline:
                raise Failed(f"{complaint()} after {limit_s} s\n{self.broker.log_tail()}")
            time.sleep(0.005)

    def await_records(self):
        before = sum(writer.count for writer in self.writers)
        self.await_that(lambda: sum(writer.count for writer in self.writers) >= before + FEWEST, MOMENT_LIMIT_S,
                        lambda: "records are not acknowledged")

    def write(self, writer):
        while self.running.is_set():
            writer.step()
            time.sleep(0.01)

    def strike(self, number):
        """Moves some partitions, kills the broker meanwhile, and starts it again."""
        chosen = self.dice.sample(self.partitions, self.dice.randrange(4, len(self.partitions) + 1))
        pattern, skip = self.dice.choice(["-future", "-delete"]), self.dice.randrange(4)
        self.reassign(self.others(chosen), SLOW)
        if self.faulty and number % 2:
            self.kill_at_rename(pattern, skip)
        else:
            self.await_that(self.under_way, MOMENT_LIMIT_S, lambda: "nothing is being copied")
            self.moments["copying"] += 1
        self.broker.kill()
        self.left += bool(self.copies())
        if self.dice.random() < 0.3:
            kill_while_starting(self.broker, self.dice.uniform(0.005, 0.15))
            self.moments["starting"] += 1
        self.broker.start()

    def kill_at_rename(self, pattern, skip):
        """Lets the copies come to their end, and kills the broker before a rename of a log that goes or of a copy that takes its place."""
        self.faulty.kill_at(RENAMES, pattern, skip)
        self.limit(FAST)
        self.await_that(lambda: self.faulty.struck or not self.copies(), MOMENT_LIMIT_S, lambda: "copies are still there")
        struck = self.faulty.disarm()
        self.moments[f"a rename of {pattern}" if struck else "(no rename was left)"] += 1

    def limit(self, rate):
        entry = ConfigEntry("replica.alter.log.dirs.io.max.bytes.per.second", str(rate), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        try:
            admin.incremental_alter_configs([resource])[resource].result(10)
        except KafkaException:
            if not self.faulty.struck:  # the answer may be lost with the broker
                raise

    def run(self, rounds):
        self.running.set()
        threads = [threading.Thread(target=self.write, args=(writer,), daemon=True) for writer in self.writers]
        for thread in threads:
            thread.start()
        try:
            for number in range(rounds):
                self.await_records()
                self.strike(number)
            self.await_records()
            self.settle()
        finally:
            self.running.clear()
            for thread in threads:
                thread.join(10)
        for writer in self.writers:
            left = writer.producer.flush(120)
            if left or writer.errors:
                raise Failed(f"{writer.name}: {left} records were never acknowledged; errors: {writer.errors[:5]}")
        self.watcher.close()
        print(f"        killed at {dict(self.moments)}, with copies left behind in {self.left} rounds; {sum(writer.count for writer in self.writers)} records acknowledged", flush=True)
        if not self.left:
            raise Failed("no kill has left a copy, so that this has shown nothing")

    def settle(self):
        """All of them move once more, and nothing is in the way."""
        targets = {of: self.dice.choice(self.directories) for of in self.partitions}
        self.reassign(targets, FAST)
        arrived = lambda: self.where() == {of: [target] for of, target in targets.items()} and not self.leftovers()
        self.await_that(arrived, DONE_LIMIT_S, lambda: f"it lies in {self.where()} with {self.leftovers()} where {targets} was asked for")
        said = self.tool("--verify")
        if "still" in said or said.count("completed successfully") < len(targets):
            raise Failed(f"kafka-reassign-partitions --verify says: {said[-1500:]}")

    def one_live_copy(self):
        self.broker.stop()
        for _ in range(2):
            expect({of: len(where) for of, where in self.where().items()}, {of: 1 for of in self.partitions}, "the directories of each partition")
            names = collections.Counter(path.name for d in self.directories for path in d.iterdir() if path.is_dir())
            expect([name for name, count in names.items() if count > 1], [], "partitions that are in both directories")
            expect(self.leftovers(), [], "what was left behind")
            if self.broker.process is None:  # and so it stays
                self.broker.start()
        expect(self.broker.log.read_text(errors="replace").count("panicked"), 0, "panics in the broker's log")

    def close(self, keep):
        self.running.clear()
        if self.watcher and not self.watcher.ended.is_set():
            self.watcher.close()
        self.broker.close(keep)


def existing(path):
    """The files of a directory that may go away meanwhile."""
    try:
        return [file for file in path.glob("*.log") if file.exists()]
    except FileNotFoundError:
        return []


def check(options, report, dice, program):
    moves, failed = Moves(options, dice, program), len(report.failures)
    try:
        moves.begin()
        report.check("disks: moves between directories go on over every kill", moves.run, options.rounds)
        if len(report.failures) > failed:
            return
        report.check("disks: each partition has one live copy", moves.one_live_copy)
        for writer in moves.writers:
            report.check(f"disks: moved: {writer.name}: acknowledged records are there once and in order", verify, moves.broker, writer, True)
        report.check("disks: moved: consumers saw nothing that vanished", verify_watcher, moves.broker, moves.watcher, moves.topics)
        moves.broker.stop()
    finally:
        moves.close(keep=bool(report.failures))
