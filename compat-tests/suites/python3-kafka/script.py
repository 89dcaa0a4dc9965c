"""The common script (lib/script.py) through kafka-python 2.0.2."""
import sys
import threading
import time
import uuid

try:
    import kafka.vendor.six.moves  # noqa: F401
except ImportError:  # the six that it carries cannot be imported by Python 3.12
    import six

    sys.modules["kafka.vendor.six.moves"] = six.moves
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (InvalidTopicError, MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError,
                          UnknownTopicOrPartitionError)
from kafka.structs import OffsetAndMetadata

from lib.checks import CannotDo, report, same

BOOTSTRAP = sys.argv[1].split(",")
LIMIT_S = 30
COPIES = min(3, len(BOOTSTRAP))  # it does not let the broker choose
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


def until(reached, what):
    end = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT_S} s: {what}")
        time.sleep(0.1)


def partitions_of(name):
    (found,) = admin.describe_topics([name])
    return [] if found["error_code"] else sorted(one["partition"] for one in found["partitions"])


def topic(partitions=3, **config):
    name = f"kafka-python-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, partitions, COPIES, topic_configs=config)])
    until(lambda: len(partitions_of(name)) == partitions, f"{name} is there")
    return name


def setting(name, key):
    (response,) = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    (resource,) = response.resources
    return next(entry[1] for entry in resource[4] if entry[0] == key)


def alter(name, key, value):
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={key: value})])
    until(lambda: setting(name, key) == value, f"{key} is {value}")


def produce(name, count=100, partition=None, prefix="", **settings):
    """What was sent, as (partition, key, value, headers)."""
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", **settings)
    sent = [(n % 3 if partition is None else partition, f"{prefix}k{n}".encode(), f"{prefix}v{n}".encode() * 10, (("h", b"%d" % n),))
            for n in range(count)]
    waiting = [producer.send(name, value, key, list(headers), where) for where, key, value, headers in sent]
    for one in waiting:
        one.get(LIMIT_S)
    producer.close(LIMIT_S)
    return sent


def read(client, count, limit_s=LIMIT_S):
    got, end = [], time.monotonic() + limit_s
    while len(got) < count and time.monotonic() < end:
        for records in client.poll(200).values():
            got += [(r.partition, r.key, r.value, tuple(r.headers)) for r in records]
    return got


def consumer(*topics, **settings):
    return KafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings})


def read_partitions(name, starts, count, limit_s=LIMIT_S, **settings):
    client = consumer(**settings)
    try:
        client.assign([TopicPartition(name, partition) for partition in starts])
        for partition, offset in starts.items():
            client.seek(TopicPartition(name, partition), offset)
        return read(client, count, limit_s)
    finally:
        client.close()


class Member:
    """A consumer of a group in a thread of its own: a poll that joins waits for the others, who must poll too."""

    def __init__(self, make):
        self.got, self.assigned, self.offsets, self.failure = [], set(), None, None
        self.thread = threading.Thread(target=self._run, args=(make,), daemon=True)
        self.thread.start()

    def _run(self, make):
        try:
            client = make()
            while self.offsets is None:
                self.got += read(client, 40, 0.2)
                self.assigned = client.assignment()
            client.commit({tp: offset for tp, offset in self.offsets.items() if tp in self.assigned})
            client.close(autocommit=False)
        except Exception as failure:
            self.failure = failure

    def stop(self, offsets):
        """It commits those that are of its partitions."""
        self.offsets = offsets
        self.thread.join(LIMIT_S)
        if self.failure:
            raise self.failure


def refused(kind, work):
    try:
        work()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


# Parts

def part_admin():
    state = {}

    def create():
        state["name"] = topic(3, **{"retention.ms": "123456"})

    def describe():
        same(partitions_of(state["name"]), [0, 1, 2], "partitions")
        same(setting(state["name"], "retention.ms"), "123456", "retention.ms")

    def configure():
        alter(state["name"], "retention.ms", "7777")

    def grow():
        admin.create_partitions({state["name"]: NewPartitions(5)})
        until(lambda: len(partitions_of(state["name"])) == 5, "five partitions")

    def delete():
        admin.delete_topics([state["name"]])
        until(lambda: state["name"] not in admin.list_topics(), "gone")

    for work in (create, describe, configure, grow, delete):
        report(work.__name__, work)


def part_produce():
    def codec(name):
        if name == "zstd":
            raise CannotDo("kafka-python 2.0.2 fetches with a version that has no zstd yet")
        where = topic()
        sent = produce(where, compression_type=None if name == "none" else name)
        same(sorted(read_partitions(where, {0: 0, 1: 0, 2: 0}, len(sent))), sorted(sent), "what was read")

    for name in ("none", "gzip", "snappy", "lz4", "zstd"):
        report(name, codec, name)


def part_consume():
    where = topic(1)
    sent = produce(where, 50, partition=0)
    time.sleep(0.05)
    moment = int(time.time() * 1000)
    sent += produce(where, 50, partition=0, prefix="later-")

    def from_an_offset():
        same(read_partitions(where, {0: 30}, 70), sent[30:], "what was read")

    def from_a_time():
        client = consumer()
        found = client.offsets_for_times({TopicPartition(where, 0): moment})
        client.close()
        same(found[TopicPartition(where, 0)].offset, 50, "the offset of that time")

    def to_the_end():
        same(len(read_partitions(where, {0: 90}, 11, 3)), 10, "records up to the end")

    report("from an offset", from_an_offset)
    report("from a time", from_a_time)
    report("to the end", to_the_end)


def part_errors():
    where = topic(1)
    again = lambda name: admin.create_topics([NewTopic(name, 1, COPIES)])
    report("topic exists", refused, TopicAlreadyExistsError, lambda: again(where))
    report("invalid topic", refused, InvalidTopicError, lambda: again("no/such"))
    report("unknown topic", refused, UnknownTopicOrPartitionError, lambda: admin.delete_topics(["not-" + where]))
    report("out of range", refused, OffsetOutOfRangeError, lambda: read_partitions(where, {0: 99}, 1, auto_offset_reset="none"))

    def too_large():
        alter(where, "max.message.bytes", "1000")
        produce_one = KafkaProducer(bootstrap_servers=BOOTSTRAP, retries=0)
        try:
            produce_one.send(where, b"x" * 5000).get(LIMIT_S)
        finally:
            produce_one.close(LIMIT_S)

    report("too large", refused, MessageSizeTooLargeError, too_large)


def part_group():
    where, group = topic(4), f"group-{uuid.uuid4().hex[:8]}"
    member = lambda: consumer(where, group_id=group)

    def two_members():
        sent = [record for partition in range(4) for record in produce(where, 10, partition=partition, prefix=f"{partition}-")]
        members = [Member(member), Member(member)]
        until(lambda: sum(len(m.got) for m in members) >= 40 and all(len(m.assigned) == 2 for m in members), "two partitions each")
        for m in members:
            m.stop({TopicPartition(where, p): OffsetAndMetadata(10, "") for p in range(4)})
        same(sorted(set(record for m in members for record in m.got)), sorted(sent), "what was read")

    def committed():
        sent = produce(where, 5, partition=2, prefix="after-")
        m = member()
        same(read(m, 5), sent, "what the next member reads")
        same([m.committed(TopicPartition(where, p)) for p in range(4)], [10] * 4, "committed")
        m.close(autocommit=False)

    def list_():
        same(group in [found[0] for found in admin.list_consumer_groups()], True, "the group is listed")

    report("two members", two_members)
    report("committed", committed)
    report("list", list_)


globals()[f"part_{sys.argv[2]}"]()
