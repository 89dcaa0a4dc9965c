"""Clients of compacted topics: producers of keyed records that know what was acknowledged, in transactions or not, and a consumer that
reads along."""
import random
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lib.scenarios import Failed

PARTITIONS, KEYS, DELETED = 2, 250, 0.15
LIMIT_S = 120
NOISE = random.Random(0).randbytes(1 << 16)
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
         "topic.metadata.refresh.interval.ms": 2000, "log_level": 2}


class Writer:
    """An idempotent producer; the values of each key are numbers that grow, and noise."""

    def __init__(self, broker, name, seed, **settings):
        self.topic, self.dice, self.number = f"compacted-{name}", random.Random(seed), 0
        self.acknowledged = [{} for _ in range(PARTITIONS)]  # offset -> (key, value)
        self.count, self.errors, self.ended = 0, [], threading.Event()
        self.producer = Producer({
            "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 300_000,
            "socket.timeout.ms": 10_000, "queue.buffering.max.messages": 300, "error_cb": self._trouble, **QUICK, **settings})
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _trouble(self, error):
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _run(self):
        try:
            while not self.ended.is_set():
                self.step()
        except Exception as failure:  # told by `finish`
            self.errors.append(f"{type(failure).__name__}: {failure}")

    def step(self):
        for _ in range(self.dice.randrange(1, 40)):
            if not self.send(lambda offset, partition, record: self.acknowledge({(partition, offset): record})):
                break
        self.producer.poll(0)
        self.ended.wait(0.02)

    def send(self, delivered):
        """Sends one record; `delivered` hears where it is. False: the queue is full."""
        partition, number, at = self.dice.randrange(PARTITIONS), self.number, self.dice.randrange(len(NOISE) - 600)
        key = f"key {self.dice.randrange(KEYS)}"
        value = None if self.dice.random() < DELETED else f"{number} ".encode() + NOISE[at:at + self.dice.randrange(600)]

        def told(error, message):
            if error is not None:
                self.errors.append(str(error))
            else:
                delivered(message.offset(), message.partition(), (key, value))

        try:
            self.producer.produce(self.topic, value, key, partition, on_delivery=told)
        except BufferError:
            return False
        self.number += 1
        return True

    def acknowledge(self, records):
        for (partition, offset), record in records.items():
            if offset in self.acknowledged[partition]:
                self.errors.append(f"offset {offset} of {partition} was acknowledged twice")
            self.acknowledged[partition][offset] = record
        self.count += len(records)

    def finish(self):
        self.ended.set()
        self.thread.join(LIMIT_S)
        left = self.producer.flush(LIMIT_S)
        if left or self.errors or self.thread.is_alive():
            raise Failed(f"{self.topic}: {left} records were never acknowledged; errors: {self.errors[:5]}")


class Transactional(Writer):
    """Some of its transactions are aborted; what is in the others counts as acknowledged when they are committed."""

    ABORTED = 0.3

    def __init__(self, broker, name, seed):
        super().__init__(broker, name, seed, **{"transactional.id": name, "transaction.timeout.ms": 300_000})
        self.is_ready, self.aborted = False, 0

    def insist(self, call):
        """Calls again as long as the error is one that passes."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return call(10)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def step(self):
        if not self.is_ready:
            self.insist(self.producer.init_transactions)
            self.is_ready = True
        records = {}
        self.producer.begin_transaction()
        try:
            for _ in range(self.dice.randrange(1, 60)):
                self.send(lambda offset, partition, record: records.update({(partition, offset): record}))
            if self.producer.flush(LIMIT_S):
                raise Failed(f"{self.topic}: records of a transaction were never acknowledged")
            if self.dice.random() >= self.ABORTED:
                self.insist(self.producer.commit_transaction)
                return self.acknowledge(records)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self.insist(self.producer.abort_transaction)
        self.aborted += 1


class Watcher:
    """Reads along from the beginning."""

    def __init__(self, broker, topics):
        self.seen = {(topic, partition): [] for topic in topics for partition in range(PARTITIONS)}
        self.ended, self.errors, self.consumer = threading.Event(), set(), a_consumer(broker)
        self.consumer.assign([TopicPartition(*where, 0) for where in self.seen])
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ended.is_set():
            for message in self.consumer.consume(500, 0.1):
                if message.error() is None:
                    self.seen[message.topic(), message.partition()].append(record_of(message))
                else:
                    self.errors.add(said(message))

    def catch_up(self, last):
        """Until it has read as far as `last` says by partition, or time is up; what is missing is for others to say."""
        deadline = time.monotonic() + LIMIT_S
        behind = lambda: any(not self.seen[where] or self.seen[where][-1][0] < offset for where, offset in last.items())
        while behind() and time.monotonic() < deadline:
            self.ended.wait(0.1)
        self.close()
        if behind():
            raise Failed(f"the consumer that read along has not come to its end after {LIMIT_S} s; its errors: {self.errors}")

    def close(self):
        if not self.ended.is_set():
            self.ended.set()
            self.thread.join(30)
            self.consumer.close()


def record_of(message):
    return message.offset(), message.key().decode(), message.value()


def said(message):
    return f"{message.topic()}-{message.partition()}: {message.error().str()}"


def a_consumer(broker, **settings):
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
                     "auto.offset.reset": "error", "isolation.level": "read_committed", "fetch.wait.max.ms": 100, **QUICK, **settings})


def create_topics(broker, topics, configs):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=configs) for topic in topics]).values():
        future.result(30)


def read_all(broker, topics):
    """What is in the topics now, by partition; and the errors of which the consumer has told."""
    consumer = a_consumer(broker, **{"enable.partition.eof": True})
    try:
        logs = {(topic, partition): [] for topic in topics for partition in range(PARTITIONS)}
        consumer.assign([TopicPartition(*where, 0) for where in logs])
        ended, errors, deadline = set(), set(), time.monotonic() + LIMIT_S
        while len(ended) < len(logs):
            for message in consumer.consume(5000, 0.2):
                if message.error() is None:
                    logs[message.topic(), message.partition()].append(record_of(message))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
                else:
                    errors.add(said(message))
            if time.monotonic() > deadline:
                raise Failed(f"{sorted(set(logs) - ended)} could not be read to their ends; errors: {sorted(errors)[:5]}")
        return logs, errors
    finally:
        consumer.close()
