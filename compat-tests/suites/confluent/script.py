"""The common script (lib/script.py) through confluent-kafka."""
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

from lib.checks import report, same

BOOTSTRAP = sys.argv[1]
LIMIT_S = 30
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def one(futures):
    (future,) = futures.values()
    return future.result(LIMIT_S)


def topic(partitions=3, **config):
    name = f"confluent-{uuid.uuid4().hex[:8]}"
    one(admin.create_topics([NewTopic(name, partitions, -1, config=config)], operation_timeout=10))
    until(lambda: len(partitions_of(name)) == partitions, f"{name} is there")
    return name


def until(reached, what):
    end = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT_S} s: {what}")
        time.sleep(0.1)


def partitions_of(name):
    entry = admin.list_topics(timeout=LIMIT_S).topics.get(name)
    return {} if entry is None else entry.partitions


def produce(name, count=100, settings=None, partition=None, prefix=""):
    """What was sent, as (partition, key, value, headers)."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 5, **(settings or {})})
    sent, errors = [], []
    for n in range(count):
        record = (n % 3 if partition is None else partition, f"{prefix}k{n}".encode(), f"{prefix}v{n}".encode() * 10, [("h", b"%d" % n)])
        producer.produce(name, record[2], record[1], record[0], headers=record[3],
                         on_delivery=lambda error, _: error and errors.append(error))
        sent.append(record)
    same(producer.flush(LIMIT_S), 0, "records left after flush")
    same([str(error) for error in errors], [], "errors")
    return sent


def consumer(**settings):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": f"g-{uuid.uuid4().hex[:8]}", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", **{name.replace("_", "."): value for name, value in settings.items()}})


def read(client, count, limit_s=LIMIT_S):
    got, end = [], time.monotonic() + limit_s
    while len(got) < count and time.monotonic() < end:
        message = client.poll(0.2)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        got.append((message.partition(), message.key(), message.value(), message.headers()))
    return got


def read_partitions(name, starts, count, **settings):
    client = consumer(**settings)
    try:
        client.assign([TopicPartition(name, partition, offset) for partition, offset in starts.items()])
        return read(client, count)
    finally:
        client.close()


def refused(code, work):
    try:
        work()
    except KafkaException as error:
        same(error.args[0].name(), KafkaError(code).name(), "the error")
        return
    raise AssertionError(f"no error, where {KafkaError(code).name()} was due")


# Parts

def part_admin():
    state = {}
    resource = lambda **more: ConfigResource(ResourceType.TOPIC, state["name"], **more)
    setting = lambda: one(admin.describe_configs([resource()]))["retention.ms"].value

    def create():
        state["name"] = topic(3, **{"retention.ms": "123456"})

    def describe():
        same(sorted(partitions_of(state["name"])), [0, 1, 2], "partitions")
        same(setting(), "123456", "retention.ms")

    def configure():
        one(admin.incremental_alter_configs([resource(incremental_configs=[
            ConfigEntry("retention.ms", "7777", incremental_operation=AlterConfigOpType.SET)])]))
        until(lambda: setting() == "7777", "retention.ms is 7777")

    def grow():
        one(admin.create_partitions([NewPartitions(state["name"], 5)], operation_timeout=10))
        until(lambda: len(partitions_of(state["name"])) == 5, "five partitions")

    def delete():
        one(admin.delete_topics([state["name"]], operation_timeout=10))
        until(lambda: not partitions_of(state["name"]), "gone")

    for work in (create, describe, configure, grow, delete):
        report(work.__name__, work)


def part_produce():
    def codec(name):
        where = topic()
        sent = produce(where, settings={"compression.type": name})
        got = read_partitions(where, {0: 0, 1: 0, 2: 0}, len(sent))
        same(sorted(got), sorted(sent), "what was read")

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
        (found,) = client.offsets_for_times([TopicPartition(where, 0, moment)], timeout=LIMIT_S)
        client.close()
        same(found.offset, 50, "the offset of that time")

    def to_the_end():
        client = consumer()
        client.assign([TopicPartition(where, 0, 90)])
        same(len(read(client, 11, 3)), 10, "records up to the end")
        client.close()

    report("from an offset", from_an_offset)
    report("from a time", from_a_time)
    report("to the end", to_the_end)


def part_errors():
    where = topic(1)
    report("topic exists", refused, KafkaError.TOPIC_ALREADY_EXISTS, lambda: one(admin.create_topics([NewTopic(where, 1, -1)])))
    report("invalid topic", refused, KafkaError.TOPIC_EXCEPTION, lambda: one(admin.create_topics([NewTopic("no/such", 1, -1)])))
    report("unknown topic", refused, KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: one(admin.delete_topics(["not-" + where])))
    report("out of range", refused, KafkaError._AUTO_OFFSET_RESET,
           lambda: read_partitions(where, {0: 99}, 1, auto_offset_reset="error"))

    def too_large():
        one(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, where, incremental_configs=[
            ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)])]))
        until(lambda: one(admin.describe_configs([ConfigResource(ResourceType.TOPIC, where)]))["max.message.bytes"].value == "1000", "set")
        errors = []
        producer = Producer({"bootstrap.servers": BOOTSTRAP})
        producer.produce(where, b"x" * 5000, on_delivery=lambda error, _: errors.append(error.code()))
        producer.flush(LIMIT_S)
        same(errors, [KafkaError.MSG_SIZE_TOO_LARGE], "the error")

    report("too large", too_large)


def part_group():
    where, group = topic(4), f"group-{uuid.uuid4().hex[:8]}"

    def two_members():
        sent = [record for partition in range(4) for record in produce(where, 10, partition=partition, prefix=f"{partition}-")]
        members = [consumer(group_id=group) for _ in range(2)]
        got, end = [], time.monotonic() + 60
        for member in members:
            member.subscribe([where])
        while time.monotonic() < end and (len(got) < 40 or any(len(member.assignment()) != 2 for member in members)):
            for member in members:
                got += read(member, 40, 0.2)
        same([len(member.assignment()) for member in members], [2, 2], "partitions of the members")
        same(sorted(set((p, k, v) for p, k, v, _ in got)), sorted((p, k, v) for p, k, v, _ in sent), "what was read")
        for member in members:
            member.commit(offsets=[TopicPartition(where, tp.partition, 10) for tp in member.assignment()], asynchronous=False)
            member.close()

    def committed():
        sent = produce(where, 5, partition=2, prefix="after-")
        member = consumer(group_id=group)
        member.subscribe([where])
        same([record[:3] for record in read(member, 5)], [record[:3] for record in sent], "what the next member reads")
        same([tp.offset for tp in member.committed([TopicPartition(where, p) for p in range(4)], timeout=LIMIT_S)], [10] * 4, "committed")
        member.close()

    def list_():
        same(group in [found.group_id for found in admin.list_consumer_groups().result(LIMIT_S).valid], True, "the group is listed")

    report("two members", two_members)
    report("committed", committed)
    report("list", list_)


def part_transaction():
    where = topic(1)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"t-{uuid.uuid4().hex[:8]}"})

    def values(isolation, count):
        return [value for _, _, value, _ in read_partitions(where, {0: 0}, count, isolation_level=isolation)]

    def commit():
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce(where, b"one", partition=0)
        producer.commit_transaction(LIMIT_S)
        same(values("read_committed", 1), [b"one"], "what is read")

    def abort():
        producer.begin_transaction()
        producer.produce(where, b"never", partition=0)
        producer.flush(LIMIT_S)
        producer.abort_transaction(LIMIT_S)
        producer.begin_transaction()
        producer.produce(where, b"two", partition=0)
        producer.commit_transaction(LIMIT_S)
        same(values("read_committed", 2), [b"one", b"two"], "what is read committed")
        same(values("read_uncommitted", 3), [b"one", b"never", b"two"], "what is read uncommitted")

    def offsets():
        group = f"group-{uuid.uuid4().hex[:8]}"
        member = consumer(group_id=group, isolation_level="read_committed")
        member.subscribe([where])
        read(member, 2)
        producer.begin_transaction()
        producer.produce(where, b"three", partition=0)
        producer.send_offsets_to_transaction(member.position(member.assignment()), member.consumer_group_metadata(), LIMIT_S)
        producer.commit_transaction(LIMIT_S)
        (found,) = member.committed([TopicPartition(where, 0)], timeout=LIMIT_S)
        same(found.offset > 2, True, "the committed offset is past the records")
        member.close()

    for work in (commit, abort, offsets):
        report(work.__name__, work)


globals()[f"part_{sys.argv[2]}"]()
