"""Copies a topic, partition by partition, with confluent-kafka (librdkafka), each few records in a transaction that commits the group's
offsets too; some transactions are aborted on purpose. What cannot be put right here ends the program, which is then started again.

    copier.py BOOTSTRAP SOURCE TARGET GROUP TRANSACTION_LIMIT_MS TRANSACTIONAL_ID
"""
import random
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH, CALL_LIMIT_S, STEP_LIMIT_S, ABORTED = 20, 10, 20, 0.15
MARK = b"!"
QUICK = {"socket.timeout.ms": 4000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
         "retry.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 1000}


def insist(call, *arguments):
    """Calls again as long as the error is one that passes."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class Copier:
    def __init__(self, bootstrap, source, target, group, limit_ms, id_):
        self.target = target
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id_, "transaction.timeout.ms": int(limit_ms),
                                  "linger.ms": 0, **QUICK})
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False,
                                  "isolation.level": "read_committed", "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
                                  "heartbeat.interval.ms": 1000, **QUICK})
        insist(self.producer.init_transactions, CALL_LIMIT_S)
        # The callbacks have the group wait for us: a new generation does not begin while a batch of the old one is under way.
        self.consumer.subscribe([source], on_assign=lambda *_: None, on_revoke=lambda *_: None)

    def step(self):
        messages = [message for message in self.consumer.consume(BATCH, 0.2) if message.error() is None]
        if not messages:
            return
        self.producer.begin_transaction()
        try:
            ends = {}
            for message in messages:
                self.producer.produce(self.target, message.value() + MARK, partition=message.partition())
                ends[message.topic(), message.partition()] = message.offset() + 1
            offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
            insist(self.producer.send_offsets_to_transaction, offsets, self.consumer.consumer_group_metadata(), CALL_LIMIT_S)
            if random.random() < ABORTED:
                self.producer.flush(CALL_LIMIT_S)
                self.give_up()
            else:
                insist(self.producer.commit_transaction, CALL_LIMIT_S)
        except KafkaException as error:
            print(f"a transaction failed: {error}", flush=True)
            if not error.args[0].txn_requires_abort():
                raise
            self.give_up()

    def give_up(self):
        insist(self.producer.abort_transaction, CALL_LIMIT_S)
        for there in insist(self.consumer.committed, self.consumer.assignment(), CALL_LIMIT_S):
            if there.error:
                raise KafkaException(there.error)
            self.consumer.seek(TopicPartition(there.topic, there.partition, max(there.offset, 0)))


if __name__ == "__main__":
    copier = Copier(*sys.argv[1:])
    while True:
        # Its default is to end the process: send_offsets_to_transaction may wait for ever for a coordinator that is no longer in the
        # metadata (librdkafka 2.16), whatever limit it is given.
        signal.alarm(STEP_LIMIT_S)
        copier.step()
