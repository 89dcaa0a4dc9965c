"""Exactly once, for real: three processes behind the proxy of the cluster test, and programs that read, write and commit in
transactions while brokers and the programs themselves are killed with SIGKILL, paused, stopped and cut off:

    java         Kafka's TransactionalMessageCopier, which aborts a third of its transactions
    librdkafka   two copiers of confluent-kafka in a group (copier.py), which abort some too
    streams      two instances of a word count by Kafka Streams with exactly_once_v2 (WordCount.java)

In the end what is committed is read back and held against the input, record by record (judge.py): each once, in order. What a
consumer has read along the way must be the same, and no transaction may be left open. The faults come from a seed, which is printed.
"""
import collections
import random
import sys
import time
import unittest
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

sys.path.append(str(Path(__file__).resolve().parent.parent / "cluster"))
import judge
import test_judge
from cluster import Faults
from lib.program import main
from lib.scenarios import Failed
from nodes import Cluster
from programs import Program, commands
from workload import PARTITIONS, QUICK, Task, View, create_topic

SOURCE = "exactly-once-source"
WORDS = "ash bay box elm fig fir hop ivy oak pea rye sage sorrel thyme tulip vetch walnut willow yarrow yew".split()
AT_ONCE, PAUSE_S = 1000, 0.02
GO_ON_LIMIT_S, ISR_LIMIT_S, DRAIN_LIMIT_S, OPEN_LIMIT_S = 60, 60, 120, 40
SETTINGS = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


class Writer:
    """Writes lines of words: many at once, then one now and then."""

    def __init__(self, cluster, dice):
        self.dice, self.number, self.acknowledged, self.errors = dice, 0, 0, []
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000, **QUICK})
        self.task = Task(self.step)

    def step(self):
        line = f"{self.number} {' '.join(self.dice.choices(WORDS, k=self.dice.randint(1, 3)))}"
        self.producer.produce(SOURCE, line.encode(), partition=self.number % PARTITIONS, on_delivery=self._delivered)
        self.number += 1
        self.producer.poll(0 if self.number < AT_ONCE else PAUSE_S)

    def _delivered(self, error, _):
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged += 1

    def finish(self):
        self.task.end()
        if self.producer.flush(60) or self.errors:
            raise Failed(f"{self.number - self.acknowledged} lines were not written; errors: {self.errors[:5]}")


def a_reader(cluster, isolation):
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
                     "auto.offset.reset": "error", "isolation.level": isolation, "fetch.wait.max.ms": 100,
                     "enable.partition.eof": True, **QUICK})


def content(message):
    key = message.key()
    return (message.offset(), message.value().decode() if key is None else (key.decode(), int(message.value())))


class Along:
    """Reads what is committed in the targets while it is written."""

    def __init__(self, cluster, targets):
        self.read = {target: {p: [] for p in range(PARTITIONS)} for target in targets}
        self.last_at = dict.fromkeys(targets, 0.0)
        self.consumer = a_reader(cluster, "read_committed")
        self.consumer.assign([TopicPartition(target, p, 0) for target in targets for p in range(PARTITIONS)])
        self.task = Task(self.step)

    def step(self):
        for message in self.consumer.consume(500, 0.1):
            if message.error() is None:
                self.read[message.topic()][message.partition()].append(content(message))
                self.last_at[message.topic()] = time.monotonic()

    def count(self, target):
        return sum(map(len, self.read[target].values()))

    def finish(self):
        self.task.end()
        self.consumer.close()


def read_all(cluster, topic, isolation="read_committed"):
    """What a reader of this isolation finds in the topic, as partition -> [(offset, content)]."""
    consumer, log, ended = a_reader(cluster, isolation), {p: [] for p in range(PARTITIONS)}, set()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        for message in consumer.consume(5000, 0.2):
            if message.error() is None:
                log[message.partition()].append(content(message))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        if time.monotonic() > deadline:
            raise Failed(f"{topic} could not be read to its end")
    consumer.close()
    return log


def contents(log):
    return {partition: [what for _, what in records] for partition, records in log.items()}


def open_partitions(admin):
    """Partitions, of any topic, in which a transaction is open."""
    asked = {TopicPartition(name, p): OffsetSpec.latest() for name, topic in admin.list_topics(timeout=20).topics.items() for p in topic.partitions}
    ends = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        told = admin.list_offsets(asked, isolation_level=isolation, request_timeout=20)
        ends.append({(p.topic, p.partition): future.result(30).offset for p, future in told.items()})
    return {partition: (stable, ends[1][partition]) for partition, stable in ends[0].items() if stable < ends[1][partition]}


class Run:
    def __init__(self, cluster, dice, work):
        self.cluster, self.dice, self.faults = cluster, dice, Faults(cluster, dice)
        self.view, self.admin = View(cluster, SOURCE), AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})
        programs = commands(cluster.bootstrap, SOURCE, work)
        self.targets = {name: target for name, (target, _) in programs.items()}
        for topic in (SOURCE, *self.targets.values()):
            create_topic(cluster, topic, len(cluster.ids))
        self.writer = Writer(cluster, random.Random(dice.random()))  # its own, for it has a thread
        self.along = Along(cluster, self.targets.values())
        self.programs = {name: [Program(name, command, work / f"{name}-{n}.log") for n, command in enumerate(processes, 1)]
                         for name, (_, processes) in programs.items()}

    @property
    def everybody(self):
        return [program for programs in self.programs.values() for program in programs]

    def await_that(self, holds, limit_s, complaint):
        deadline = time.monotonic() + limit_s
        while not holds():
            self.cluster.check()
            if time.monotonic() > deadline:
                raise Failed(f"{complaint()} after {limit_s} s")
            time.sleep(0.05)

    def await_progress(self, since):
        late = lambda: [name for name, target in self.targets.items() if self.along.last_at[target] < since]
        self.await_that(lambda: not late(), GO_ON_LIMIT_S, lambda: f"nothing more is committed by {', '.join(late())}")

    def strike(self, fault, node):
        if fault == "kill_programs":
            for programs in self.programs.values():
                self.dice.choice(programs).kill()
        else:
            end = getattr(self.faults, fault)(node)
            time.sleep({"pause": 5.0, "connections_break": 0}.get(fault, self.dice.uniform(1, 3)))
            end()
        ended = time.monotonic()
        self.await_progress(ended)
        back_s = time.monotonic() - ended
        self.view.await_full_isr(len(self.cluster.ids), ISR_LIMIT_S)
        print(f"        {fault}{f' of node {node}' if node else ''}: everybody goes on {back_s:.1f} s after it", flush=True)

    def drain(self):
        """Until everything that was written has come through, or time is up; what is missing then is the judge's to say."""
        self.writer.finish()
        self.source = contents(read_all(self.cluster, SOURCE, "read_uncommitted"))
        wanted = {name: self.writer.number for name in self.targets}
        wanted["streams"] = sum(judge.words(self.source).values())
        missing = lambda: {name: wanted[name] - self.along.count(target) for name, target in self.targets.items() if self.along.count(target) < wanted[name]}
        self.await_that(lambda: not missing(), DRAIN_LIMIT_S, lambda: f"records are missing: {missing()}")

    def finish(self):
        for program in self.everybody:
            program.close()
        self.await_that(lambda: not open_partitions(self.admin), OPEN_LIMIT_S, lambda: f"transactions are open in {open_partitions(self.admin)}")

    def exact(self, name):
        target, log = self.targets[name], contents(self.final(name))
        complaints = list(judge.counts(self.source, log) if name == "streams" else judge.copies(self.source, log, "!" if name == "librdkafka" else ""))
        everything = sum(map(len, read_all(self.cluster, target, "read_uncommitted").values()))
        committed, starts = sum(map(len, log.values())), [program.starts for program in self.programs[name]]
        print(f"        {name}: {committed} records committed, {everything - committed} aborted; its processes were started {starts} times", flush=True)
        if complaints:
            kinds = collections.Counter(kind for kind, _ in complaints)
            raise Failed("\n".join([str(dict(kinds)), *(f"    {kind}: {text}" for kind, text in complaints[:20])]))
        if not committed or (name != "streams" and everything == committed):
            raise Failed("nothing was committed, or nothing aborted")

    def final(self, name):
        return read_all(self.cluster, self.targets[name])

    def same_along(self):
        self.along.finish()
        for name, target in self.targets.items():
            for partition, records in self.final(name).items():
                along = self.along.read[target][partition]
                if along != records:
                    at = next((n for n, (a, b) in enumerate(zip(along, records)) if a != b), min(len(along), len(records)))
                    raise Failed(f"partition {partition} of {target}: {len(along)} records were read along, {len(records)} are there; "
                                 f"the first difference is at {at}: {along[at:at + 1]} and {records[at:at + 1]}")

    def close(self):
        for program in self.everybody:
            program.close()


def plan(dice, ids, rounds):
    """Each node is killed once, and so are the programs; the rest moves leaders in other ways."""
    faults = [("kill", node) for node in dice.sample(ids, len(ids))]
    faults += [("kill_programs", None), *((fault, dice.choice(ids)) for fault in ("clean_stop", "pause", "connections_break"))]
    dice.shuffle(faults)
    return (faults * (rounds // len(faults) + 1))[:rounds]


def judge_bites():
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(test_judge).run(result)
    if not result.wasSuccessful() or not result.testsRun:
        raise Failed(f"{result.testsRun} tests, {result.failures + result.errors}")


def exactly_once(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.rounds} faults", flush=True)
    report.check("exactly once: the judge finds each fault in made-up logs", judge_bites)
    cluster, run, ended = Cluster(options.command, options.work, 3, SETTINGS), None, False
    try:
        cluster.start()
        run = Run(cluster, dice, options.work)
        report.check("exactly once: everybody begins", run.await_progress, time.monotonic())
        for number, (fault, node) in enumerate(plan(dice, cluster.ids, options.rounds), 1):
            report.check(f"exactly once: {number}: everybody goes on after {fault.replace('_', ' ')}", run.strike, fault, node)
        report.check("exactly once: everything comes through", run.drain)
        report.check("exactly once: no transaction is left open", run.finish)
        for name in run.targets:
            report.check(f"exactly once: {name}: each record once, in order", run.exact, name)
        report.check("exactly once: what was read along is what is there", run.same_along)
        report.check("exactly once: all nodes stop in an orderly way", cluster.stop)
        ended = True
    finally:
        if report.failures and run:
            for program in run.everybody:
                print(f"    the end of {program.log}:\n{program.log_tail()}", flush=True)
        if run:
            run.close()
        cluster.close(keep=not ended or bool(report.failures))


if __name__ == "__main__":
    main(__doc__, exactly_once, rounds=7, seed=random.SystemRandom().randrange(1_000_000))
