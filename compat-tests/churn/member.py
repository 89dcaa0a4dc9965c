"""Members of a group, confluent-kafka's (librdkafka), a thread each in one process, which may be killed at any time. They process
records, which is to write them down (journal.py), and commit what they have processed, now and then and before they give it up.

    member.py BOOTSTRAP TOPIC GROUP JOURNAL

Standard input has one command a line: `join MEMBER PROTOCOL [INSTANCE]`, where the protocol is `consumer` or the assignment strategy of
a classic member; `leave MEMBER`, in an orderly way. At its end all leave, and the process ends.
"""
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from journal import Journal, spans

AT_ONCE, WAIT_S, COMMIT_EVERY_S, PAUSE_S = 500, 0.2, 0.5, 1.0
PATIENCE = {"socket.timeout.ms": 10000, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 5000, "max.poll.interval.ms": 60000,
            "coordinator.query.interval.ms": 1000, "log_level": 0}
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}


class Member:
    def __init__(self, bootstrap, topic, group, journal, name, protocol, instance=None):
        self.topic, self.journal, self.name = topic, journal, name
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name, "enable.auto.commit": False,
                    "auto.offset.reset": "earliest", "fetch.wait.max.ms": 500, **PATIENCE}
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings.update(CLASSIC, **{"group.protocol": "classic", "partition.assignment.strategy": protocol})
        if instance:
            settings["group.instance.id"] = instance
        self.owned, self.reached, self.committed, self.committed_at = set(), {}, {}, time.monotonic()
        self.leaving, self.settings, self.has_failed = threading.Event(), settings, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.leaving.is_set():
            self.live()
        self.tell(["left"])

    def live(self):
        """Until it is to leave, or cannot go on: a static member that comes back before its former self is given up has to try again."""
        self.consumer, self.has_failed = Consumer(self.settings), False
        self.consumer.subscribe([self.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
        while not self.leaving.is_set() and not self.has_failed:
            self.step()
        self.commit()
        self.consumer.close()
        self.forget([TopicPartition(self.topic, partition) for partition in list(self.owned)])
        if self.has_failed:
            self.leaving.wait(PAUSE_S)

    def step(self):
        offsets = {}
        for message in self.consumer.consume(AT_ONCE, WAIT_S):
            if message.error() is None and message.partition() in self.owned:  # not so if it was taken away in this very call
                offsets.setdefault(message.partition(), []).append(message.offset())
            elif message.error() is not None and message.error().code() == KafkaError._FATAL:
                self.tell(["refused", message.error().name()])
                self.has_failed = True
        self.tell(*(["did", partition, *span] for partition, those in offsets.items() for span in spans(those)))
        self.reached.update((partition, those[-1] + 1) for partition, those in offsets.items())
        if time.monotonic() - self.committed_at > COMMIT_EVERY_S:
            self.commit()

    def commit(self):
        news = {partition: end for partition, end in self.reached.items() if self.committed.get(partition) != end}
        if news:
            try:
                told = self.consumer.commit(offsets=[TopicPartition(self.topic, *one) for one in news.items()], asynchronous=False)
            except KafkaException as refused:
                self.tell(["refused", refused.args[0].name()])
            else:
                taken = {one.partition: one.offset for one in told if one.error is None}
                self.tell(*(["committed", *one] for one in taken.items()))
                self.tell(*(["refused", one.error.name()] for one in told if one.error is not None))
                self.committed.update(taken)
        self.committed_at = time.monotonic()

    def assigned(self, _, partitions):
        self.tell(*(["assigned", one.partition] for one in partitions))
        self.forget(partitions)
        self.owned.update(one.partition for one in partitions)

    def revoked(self, _, partitions):
        self.commit()
        self.lost(_, partitions)

    def lost(self, _, partitions):
        self.tell(*(["revoked", one.partition] for one in partitions))
        self.forget(partitions)

    def forget(self, partitions):
        for one in partitions:
            self.reached.pop(one.partition, None)
            self.committed.pop(one.partition, None)
            self.owned.discard(one.partition)

    def tell(self, *what):
        now = f"{time.monotonic():.6f}"
        self.journal.write(*([kind, now, self.name, *rest] for kind, *rest in what))


def main(bootstrap, topic, group, path):
    journal, members = Journal(path), {}
    for line in sys.stdin:
        word, name, *rest = line.split()
        if word == "join":
            members[name] = Member(bootstrap, topic, group, journal, name, *rest)
        else:
            members[name].leaving.set()
    for member in members.values():
        member.leaving.set()
    for member in members.values():
        member.thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
