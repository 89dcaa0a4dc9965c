"""Churn: groups whose members (member.py) join, leave, crash and hang, while three brokers are killed and stopped one after the other.
Three groups read the same topic: one of the classic protocol, one of the consumer protocol (KIP-848), and one whose members speak
either, so that it goes from one to the other and back. Every third member is a static one.

In the end every record must have been processed, and no member may have begun before what had been committed when it got a partition
(journal.py). Then all leave in an orderly way, and who comes after them must process nothing but what is new. The order of things comes
from a seed, which is printed. `--members 100` gives each group so many members and partitions, one group after the other.
"""
import random
import sys
import time
import unittest
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

sys.path.append(str(Path(__file__).resolve().parent.parent / "cluster"))
import test_journal
from group import Group
from journal import account, complaints, processed_before
from lib.program import main
from lib.scenarios import Failed
from nodes import Cluster
from workload import QUICK, Task, View, create_topic

PAUSE_S = 0.001
GO_ON_LIMIT_S, ISR_LIMIT_S, DRAIN_LIMIT_S = 120, 90, 180
FEW = 30  # up to so many members the groups are there at the same time
SETTINGS = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "500",
            "group.consumer.session.timeout.ms": "6000", "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}


class Writer:
    """Writes records to all partitions in turn."""

    def __init__(self, cluster, topic, partitions):
        self.topic, self.partitions, self.number, self.acknowledged, self.errors = topic, partitions, 0, 0, []
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20,
                                  "message.timeout.ms": 120_000, **QUICK})

    def step(self):
        self.producer.produce(self.topic, f"{self.number}".encode(), partition=self.number % self.partitions, on_delivery=self._delivered)
        self.number += 1
        self.producer.poll(PAUSE_S)

    def _delivered(self, error, _):
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged += 1

    def begin(self):
        self.task = Task(self.step)

    def finish(self):
        self.task.end()
        self.flush()

    def flush(self):
        if self.producer.flush(120) or self.errors:
            raise Failed(f"{self.number - self.acknowledged} records were not written; errors: {self.errors[:5]}")


class Run:
    """Some groups on one topic."""

    def __init__(self, cluster, dice, work, kinds, members):
        self.cluster, self.dice = cluster, dice
        self.topic, self.partitions = f"churn-{'-'.join(kinds)}", max(members, 24)
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})
        create_topic(cluster, self.topic, len(cluster.ids), self.partitions)
        self.view = View(cluster, self.topic, self.partitions)
        self.writer = Writer(cluster, self.topic, self.partitions)
        self.groups = [Group(f"{self.topic}-{kind}", kind, members, cluster.bootstrap, self.topic, dice, work) for kind in kinds]
        # Not members: they only ask what is committed.
        self.askers = {group: Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group.id, **QUICK}) for group in self.groups}

    # What is waited for

    def await_that(self, holds, limit_s, complaint):
        deadline = time.monotonic() + limit_s
        while not holds():
            self.cluster.check()
            for group in self.groups:
                group.check()
            if time.monotonic() > deadline:
                raise Failed(f"{complaint()} after {limit_s} s")
            time.sleep(0.1)

    def committed(self, group):
        """What the group has committed, by partition; nothing when nobody can say."""
        try:
            told = self.askers[group].committed([TopicPartition(self.topic, partition) for partition in range(self.partitions)], timeout=10)
        except KafkaException:
            return {}
        return {one.partition: one.offset for one in told if one.error is None and one.offset >= 0}

    def ends(self):
        asked = {TopicPartition(self.topic, partition): OffsetSpec.latest() for partition in range(self.partitions)}
        told = self.admin.list_offsets(asked, request_timeout=30)
        return {one.partition: future.result(40).offset for one, future in told.items()}

    def await_progress(self):
        before = {group: sum(self.committed(group).values()) for group in self.groups}
        late = lambda: [group for group in self.groups if sum(self.committed(group).values()) <= before[group]]
        self.await_that(lambda: not late(), GO_ON_LIMIT_S, lambda: f"nothing more is committed by {', '.join(g.id for g in late())}")

    def await_committed(self):
        self.final = self.ends()
        late = lambda group: {p: (at, end) for p, end in self.final.items() if (at := self.committed(group).get(p, 0)) != end}
        for group in self.groups:
            self.await_that(lambda: not late(group), DRAIN_LIMIT_S,
                            lambda: f"{group.id} has not committed up to the end: {dict(list(late(group).items())[:10])}, {self.said_of(group)}")

    def described(self, group):
        try:
            return self.admin.describe_consumer_groups([group.id], request_timeout=10)[group.id].result(15)
        except KafkaException:
            return None

    def said_of(self, group):
        told = self.described(group)
        return f"{told.state.name} with {len(told.members)} members" if told else "not described"

    def await_state(self, state, count):
        for group in self.groups:
            is_so = lambda told: told is not None and told.state == state and len(told.members) == count
            self.await_that(lambda: is_so(self.described(group)), GO_ON_LIMIT_S,
                            lambda: f"{group.id} is {self.said_of(group)}; {state.name} with {count} are expected")

    # What is done

    def begin(self):
        self.writer.begin()
        for group in self.groups:
            group.fill()
        self.await_progress()

    def act(self):
        for group in self.groups:
            group.act()
        time.sleep(self.dice.uniform(0.5, 1.5))

    def restart(self, fault, node):
        getattr(self.cluster, fault)(node)
        self.act()
        self.act()
        self.cluster.restart(node)
        self.act()
        self.await_progress()
        self.view.await_full_isr(len(self.cluster.ids), ISR_LIMIT_S)

    def drain(self):
        self.writer.finish()
        for group in self.groups:
            group.settle()
        self.await_committed()
        self.await_state(ConsumerGroupState.STABLE, self.groups[0].wanted)

    def leave(self):
        for group in self.groups:
            group.end()
        self.await_state(ConsumerGroupState.EMPTY, 0)

    def judged(self, group):
        events = group.events()
        members, records, count, refused = account(events)
        print(f"        {group.id} ({group.protocols}): {len(members)} members in turn, {group.deeds}; {sum(self.final.values())} records, "
              f"processed {records} times; {count['committed']} commits, refused: {dict(refused)}", flush=True)
        found = list(complaints(events, self.final))
        if not records or not count["committed"] or not count["left"]:
            raise Failed("nothing was processed, or committed, or nobody has left")
        if found:
            raise Failed("\n".join([f"{len(found)} complaints", *(f"    {kind}: {text}" for kind, text in found[:20])]))

    def once_more(self):
        """New members after everybody has closed: nothing is theirs but what is written now."""
        before = self.final
        for _ in range(self.partitions):
            self.writer.step()
        self.writer.flush()
        for group in self.groups:
            group.begin_anew()
        self.await_committed()
        self.leave()
        for group in self.groups:
            found = processed_before(group.events(), before)
            if found:
                raise Failed("\n".join([f"{group.id}: {len(found)} complaints", *(f"    {text}" for text in found[:20])]))

    def close(self):
        for group in self.groups:
            group.close()
            self.askers[group].close()


def judge_bites():
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(test_journal).run(result)
    if not result.wasSuccessful() or not result.testsRun:
        raise Failed(f"{result.testsRun} tests, {result.failures + result.errors}")


def under_churn(cluster, dice, report, work, kinds, members):
    run = Run(cluster, dice, work, kinds, members)
    name = f"churn: {', '.join(kinds)}"
    try:
        report.check(f"{name}: {members} members each begin", run.begin)
        for node in dice.sample(cluster.ids, len(cluster.ids)):
            fault = dice.choice(["kill", "end"])
            report.check(f"{name}: the groups go on after node {node}: {fault}", run.restart, fault, node)
        report.check(f"{name}: everything is processed and committed", run.drain)
        report.check(f"{name}: all leave", run.leave)
        for group in run.groups:
            report.check(f"churn: {group.kind}: no record is lost, and nobody begins before what was committed", run.judged, group)
        report.check(f"{name}: after a clean close nothing comes again", run.once_more)
    finally:
        run.close()


def churn(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.members} members", flush=True)
    report.check("churn: the judge finds each fault in made-up journals", judge_bites)
    cluster, ended = Cluster(options.command, options.work, 3, SETTINGS, proxied=False), False
    kinds = ["classic", "consumer", "mixed"]
    try:
        cluster.start()
        for together in [kinds] if options.members <= FEW else [[kind] for kind in kinds]:
            under_churn(cluster, dice, report, options.work, together, options.members)
        report.check("churn: all nodes stop in an orderly way", cluster.stop)
        ended = True
    finally:
        cluster.close(keep=not ended or bool(report.failures))


if __name__ == "__main__":
    main(__doc__, churn, members=10, seed=random.SystemRandom().randrange(1_000_000))
