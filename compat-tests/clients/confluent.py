"""Client driver: confluent-kafka, which is today's librdkafka, from Python."""
import sys
import threading
import time

import confluent_kafka
from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, Producer,
                             TopicPartition)
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic,
                                   OffsetSpec, ResourceType)

from protocol import KafkaFailure, decode, encode, serve

LIMIT_S = 30
NAMES = {"TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION"}  # where librdkafka has a name of its own
STAMP_TYPES = {0: "none", 1: "create", 2: "append"}


def failure(error):
    return KafkaFailure(NAMES.get(error.name(), error.name().lstrip("_")), error.str())


def result(futures):
    """The one result of an admin call about one thing."""
    (future,) = futures.values()
    try:
        return future.result(LIMIT_S)
    except KafkaException as error:
        raise failure(error.args[0]) from None


class Confluent:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producers = {}

    # Topics

    def op_create_topic(self, topic, partitions, configs=None, replication=1):
        new = NewTopic(topic, partitions, replication, config=configs or {})
        result(self.admin.create_topics([new], operation_timeout=10))
        self._settle(lambda: len(self._partitions(topic)) == partitions)

    def op_create_partitions(self, topic, total):
        result(self.admin.create_partitions([NewPartitions(topic, total)], operation_timeout=10))
        self._settle(lambda: len(self._partitions(topic)) == total)

    def op_delete_topic(self, topic):
        result(self.admin.delete_topics([topic], operation_timeout=10))
        self._settle(lambda: topic not in self.op_list_topics())

    def op_list_topics(self):
        return sorted(self.admin.list_topics(timeout=LIMIT_S).topics)

    def op_describe_topic(self, topic):
        if topic not in self.op_list_topics():
            raise KafkaFailure("UNKNOWN_TOPIC_OR_PARTITION", topic)
        return [{"id": p.id, "leader": p.leader, "replicas": p.replicas, "isr": p.isrs}
                for p in sorted(self._partitions(topic).values(), key=lambda p: p.id)]

    def _partitions(self, topic):
        entry = self.admin.list_topics(timeout=LIMIT_S).topics.get(topic)
        return {} if entry is None else entry.partitions

    def _settle(self, reached):
        deadline = time.monotonic() + 10
        while not reached() and time.monotonic() < deadline:
            time.sleep(0.05)

    # Settings

    def op_alter_config(self, topic, set, delete=()):
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set.items()]
        entries += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        result(self.admin.incremental_alter_configs([resource]))

    def op_describe_config(self, topic):
        found = result(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {entry.name: entry.value for entry in found.values()}

    # The cluster

    def op_describe_cluster(self):
        cluster = self.admin.describe_cluster().result(LIMIT_S)
        return {"id": cluster.cluster_id, "controller": cluster.controller.id, "nodes": [n.id for n in cluster.nodes]}

    # Records

    def op_produce(self, topic, records, compression="none", acks="all", idempotent=True, settings=None):
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": compression, "acks": acks,
                             "enable.idempotence": idempotent, "linger.ms": 5, "message.max.bytes": 20_000_000,
                             "message.timeout.ms": LIMIT_S * 1000, **(settings or {})})
        offsets, errors = [None] * len(records), []

        def delivered(index):
            def report(error, message):
                if error is not None:
                    errors.append(error)
                else:
                    offsets[index] = message.offset()
            return report

        for index, record in enumerate(records):
            headers = [(name, decode(value)) for name, value in record["headers"]] or None
            stamp = {} if record.get("timestamp") is None else {"timestamp": record["timestamp"]}
            while True:
                try:
                    producer.produce(topic, decode(record["value"]), decode(record["key"]), record["partition"],
                                     on_delivery=delivered(index), headers=headers, **stamp)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(LIMIT_S) > 0:
            raise KafkaFailure("TIMED_OUT", "records were left after flush")
        if errors:
            raise failure(errors[0])
        return offsets

    def op_fetch(self, topic, partition, offset, count, settings=None):
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False,
                             "auto.offset.reset": "error", "fetch.message.max.bytes": 20_000_000, "check.crcs": True,
                             **(settings or {})})
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            records, deadline = [], time.monotonic() + LIMIT_S
            while len(records) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(records), 0.2):
                    if message.error() is None:
                        records.append(self._record(message))
                    elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                        raise KafkaFailure("OFFSET_OUT_OF_RANGE", message.error().str())
                    elif not message.error().retriable():
                        raise failure(message.error())
            return records
        finally:
            consumer.close()

    def _record(self, message):
        kind, stamp = message.timestamp()
        headers = [[name, encode(value)] for name, value in message.headers() or []]
        return {"offset": message.offset(), "timestamp": stamp, "timestamp_type": STAMP_TYPES[kind],
                "key": encode(message.key()), "value": encode(message.value()), "headers": headers}

    # Offsets

    def op_list_offset(self, topic, partition, spec):
        specs = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest, "latest_committed": OffsetSpec.latest,
                 "max_timestamp": OffsetSpec.max_timestamp}
        chosen = specs[spec]() if spec in specs else OffsetSpec.for_timestamp(int(spec))
        isolation = IsolationLevel.READ_COMMITTED if spec == "latest_committed" else IsolationLevel.READ_UNCOMMITTED
        return result(self.admin.list_offsets({TopicPartition(topic, partition): chosen}, isolation_level=isolation)).offset

    def op_delete_records(self, topic, partition, before):
        return result(self.admin.delete_records([TopicPartition(topic, partition, before)])).low_watermark

    # Groups

    def op_read_as_group(self, topic, group, count, members=1, protocol="classic"):
        records, failures, enough = [], [], threading.Event()

        def commit(consumer, _):
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._NO_OFFSET:
                    failures.append(error)

        def member():
            consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "group.protocol": protocol,
                                 "enable.auto.commit": False, "auto.offset.reset": "earliest"})
            consumer.subscribe([topic], on_revoke=commit)
            deadline = time.monotonic() + LIMIT_S
            while not enough.is_set() and not failures and time.monotonic() < deadline:
                for message in consumer.consume(10, 0.1):
                    if message.error() is None:
                        records.append({"partition": message.partition(), **self._record(message)})
                    elif not message.error().retriable():
                        failures.append(KafkaException(message.error()))
                if len(records) >= count:
                    enough.set()
            commit(consumer, None)
            consumer.close()

        threads = [threading.Thread(target=member) for _ in range(members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failure(failures[0].args[0])
        return records

    def op_committed(self, group, topic):
        asked = ConsumerGroupTopicPartitions(group)
        found = result(self.admin.list_consumer_group_offsets([asked])).topic_partitions
        return {str(p.partition): p.offset for p in found if p.topic == topic and p.error is None}

    def op_describe_group(self, group):
        described = result(self.admin.describe_consumer_groups([group]))
        return {"state": described.state.name, "members": len(described.members)}

    def op_list_groups(self):
        listed = self.admin.list_consumer_groups().result(LIMIT_S)
        return sorted(group.group_id for group in listed.valid)

    def op_delete_group(self, group):
        result(self.admin.delete_consumer_groups([group]))

    # Transactions

    def _transactional(self, id_, timeout_ms=60_000):
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": id_, "transaction.timeout.ms": timeout_ms})
        self._step(producer.init_transactions, LIMIT_S)
        return producer

    def _step(self, call, *arguments):
        try:
            return call(*arguments)
        except KafkaException as error:
            raise failure(error.args[0]) from None

    def op_txn_open(self, handle, id, timeout_ms):
        self.producers[handle] = self._transactional(id, timeout_ms)

    def op_txn_begin(self, handle):
        self._step(self.producers[handle].begin_transaction)

    def op_txn_send(self, handle, topic, values):
        errors, producer = [], self.producers[handle]
        for value in values:
            producer.produce(topic, value.encode(), partition=0, on_delivery=lambda error, _: error and errors.append(error))
        if producer.flush(LIMIT_S) > 0:
            raise KafkaFailure("TIMED_OUT", "records were left after flush")
        if errors:
            raise failure(errors[0])

    def op_txn_end(self, handle, commit):
        producer = self.producers[handle]
        self._step(producer.commit_transaction if commit else producer.abort_transaction, LIMIT_S)

    def op_txn_close(self, handle):
        del self.producers[handle]

    def op_transform(self, source, target, group, id, count, abort_every):
        """Copies records with a mark, a few in each transaction; every so many are aborted and done again."""
        producer = self._transactional(id)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False,
                             "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        consumer.subscribe([source])
        copied = rounds = aborted = 0
        deadline = time.monotonic() + LIMIT_S
        try:
            while copied < count and time.monotonic() < deadline:
                messages = [message for message in consumer.consume(5, 0.2) if message.error() is None]
                if not messages:
                    continue
                self._step(producer.begin_transaction)
                for message in messages:
                    producer.produce(target, message.value() + b"!", partition=message.partition())
                positions = consumer.position(consumer.assignment())
                read = [position for position in positions if position.offset >= 0]
                self._step(producer.send_offsets_to_transaction, read, consumer.consumer_group_metadata(), LIMIT_S)
                rounds += 1
                if rounds % abort_every == 0:
                    producer.flush(LIMIT_S)
                    self._step(producer.abort_transaction, LIMIT_S)
                    aborted += 1
                    for there in consumer.committed(consumer.assignment(), LIMIT_S):
                        consumer.seek(TopicPartition(source, there.partition, max(there.offset, 0)))
                else:
                    self._step(producer.commit_transaction, LIMIT_S)
                    copied += len(messages)
            return {"copied": copied, "aborted": aborted}
        finally:
            consumer.close()


if __name__ == "__main__":
    version = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    serve(Confluent(sys.argv[1]), version, {})
