"""The common script (lib/script.py) through aiokafka."""
import asyncio
import sys
import time
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (InvalidTopicError, MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError,
                             UnknownTopicOrPartitionError, for_code)

from lib.checks import same

BOOTSTRAP = sys.argv[1]
LIMIT_S = 30
COPIES = min(3, len(BOOTSTRAP.split(",")))  # it does not let the broker choose


async def report(name, work, *arguments):
    try:
        await asyncio.wait_for(work(*arguments), 60)
        print(f"passed {name}", flush=True)
    except Exception as failure:
        print(f"failed {name} -- {type(failure).__name__}: {failure}".replace("\n", " "), flush=True)


async def until(reached, what):
    end = time.monotonic() + LIMIT_S
    while not await reached():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT_S} s: {what}")
        await asyncio.sleep(0.1)


def checked(response):
    """Admin answers come with codes in them, which nobody has looked at."""
    for attribute in ("topic_errors", "topic_error_codes"):
        for error in getattr(response, attribute, []):
            if error[1]:
                raise for_code(error[1])(str(error))
    return response


class Session:
    async def __aenter__(self):
        self.admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await self.admin.start()
        return self

    async def __aexit__(self, *_):
        await self.admin.close()

    async def topic(self, partitions=3, **config):
        name = f"aiokafka-{uuid.uuid4().hex[:8]}"
        checked(await self.admin.create_topics([NewTopic(name, partitions, COPIES, topic_configs=config)]))
        await until(lambda: self.has(name, partitions), f"{name} is there")
        return name

    async def has(self, name, partitions):
        (told,) = await self.admin.describe_topics([name])
        return len(told["partitions"]) == partitions

    async def setting(self, name, setting):
        (answer,) = await self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}[setting]

    async def alter(self, name, setting, value):
        await self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={setting: value})])
        await until(lambda: self.is_set(name, setting, value), f"{setting} is {value}")

    async def is_set(self, name, setting, value):
        return await self.setting(name, setting) == value


async def produce(name, count=100, partition=None, prefix="", **settings):
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, **settings)
    await producer.start()
    try:
        sent = [(n % 3 if partition is None else partition, f"{prefix}k{n}".encode(), f"{prefix}v{n}".encode() * 10, (("h", b"%d" % n),))
                for n in range(count)]
        waiting = [await producer.send(name, value, key, partition=where, headers=list(headers)) for where, key, value, headers in sent]
        await asyncio.gather(*waiting)
        return sent
    finally:
        await producer.stop()


async def read(client, count, limit_s=LIMIT_S):
    got, end = [], time.monotonic() + limit_s
    while len(got) < count and time.monotonic() < end:
        for records in (await client.getmany(timeout_ms=200)).values():
            got += [(r.partition, r.key, r.value, tuple(r.headers)) for r in records]
    return got


async def read_partitions(name, starts, count, **settings):
    client = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset=settings.pop("reset", "earliest"), **settings)
    await client.start()
    try:
        client.assign([TopicPartition(name, partition) for partition in starts])
        for partition, offset in starts.items():
            client.seek(TopicPartition(name, partition), offset)
        return await read(client, count)
    finally:
        await client.stop()


async def refused(kind, work):
    try:
        await work()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


async def part_admin(session):
    state = {}

    async def create():
        state["name"] = await session.topic(3, **{"retention.ms": "123456"})

    async def describe():
        same(await session.setting(state["name"], "retention.ms"), "123456", "retention.ms")

    async def configure():
        await session.alter(state["name"], "retention.ms", "7777")

    async def grow():
        checked(await session.admin.create_partitions({state["name"]: NewPartitions(5)}))
        await until(lambda: session.has(state["name"], 5), "five partitions")

    async def delete():
        checked(await session.admin.delete_topics([state["name"]]))

        async def gone():
            return state["name"] not in await session.admin.list_topics()
        await until(gone, "gone")

    for work in (create, describe, configure, grow, delete):
        await report(work.__name__, work)


async def part_produce(session):
    async def codec(name):
        where = await session.topic()
        sent = await produce(where, compression_type=None if name == "none" else name)
        same(sorted(await read_partitions(where, {0: 0, 1: 0, 2: 0}, len(sent))), sorted(sent), "what was read")

    for name in ("none", "gzip", "snappy", "lz4", "zstd"):
        await report(name, codec, name)


async def part_consume(session):
    where = await session.topic(1)
    sent = await produce(where, 50, partition=0)
    await asyncio.sleep(0.05)
    moment = int(time.time() * 1000)
    sent += await produce(where, 50, partition=0, prefix="later-")

    async def from_an_offset():
        same(await read_partitions(where, {0: 30}, 70), sent[30:], "what was read")

    async def from_a_time():
        client = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP)
        await client.start()
        found = await client.offsets_for_times({TopicPartition(where, 0): moment})
        await client.stop()
        same(found[TopicPartition(where, 0)].offset, 50, "the offset of that time")

    async def to_the_end():
        client = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP)
        await client.start()
        client.assign([TopicPartition(where, 0)])
        client.seek(TopicPartition(where, 0), 90)
        same(len(await read(client, 11, 3)), 10, "records up to the end")
        await client.stop()

    await report("from an offset", from_an_offset)
    await report("from a time", from_a_time)
    await report("to the end", to_the_end)


async def part_errors(session):
    where = await session.topic(1)

    async def again(name):
        checked(await session.admin.create_topics([NewTopic(name, 1, COPIES)]))

    async def unknown():
        checked(await session.admin.delete_topics(["not-" + where]))

    async def out_of_range():
        client = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="none")
        await client.start()
        try:
            client.assign([TopicPartition(where, 0)])
            client.seek(TopicPartition(where, 0), 99)
            await asyncio.wait_for(client.getone(), LIMIT_S)
        finally:
            await client.stop()

    async def too_large():
        await session.alter(where, "max.message.bytes", "1000")
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP)
        await producer.start()
        try:
            await producer.send_and_wait(where, b"x" * 5000)
        finally:
            await producer.stop()

    await report("topic exists", refused, TopicAlreadyExistsError, lambda: again(where))
    await report("invalid topic", refused, InvalidTopicError, lambda: again("no/such"))
    await report("unknown topic", refused, UnknownTopicOrPartitionError, unknown)
    await report("out of range", refused, OffsetOutOfRangeError, out_of_range)
    await report("too large", refused, MessageSizeTooLargeError, too_large)


async def part_group(session):
    where, group = await session.topic(4), f"group-{uuid.uuid4().hex[:8]}"

    async def member():
        client = AIOKafkaConsumer(where, bootstrap_servers=BOOTSTRAP, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest")
        await client.start()
        return client

    async def two_members():
        sent = [record for partition in range(4) for record in await produce(where, 10, partition=partition, prefix=f"{partition}-")]
        members, got, end = [await member(), await member()], [], time.monotonic() + 50
        while time.monotonic() < end and (len(got) < 40 or any(len(m.assignment()) != 2 for m in members)):
            for m in members:
                got += await read(m, 40, 0.2)
        same([len(m.assignment()) for m in members], [2, 2], "partitions of the members")
        same(sorted(set(got)), sorted(sent), "what was read")
        for m in members:
            await m.commit({tp: 10 for tp in m.assignment()})
            await m.stop()

    async def committed():
        sent = await produce(where, 5, partition=2, prefix="after-")
        m = await member()
        same(await read(m, 5), sent, "what the next member reads")
        same([await m.committed(TopicPartition(where, p)) for p in range(4)], [10] * 4, "committed")
        await m.stop()

    async def list_():
        same(group in [found[0] for found in await session.admin.list_consumer_groups()], True, "the group is listed")

    await report("two members", two_members)
    await report("committed", committed)
    await report("list", list_)


async def part_transaction(session):
    where = await session.topic(1)
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"t-{uuid.uuid4().hex[:8]}")

    async def values(isolation, count):
        return [record[2] for record in await read_partitions(where, {0: 0}, count, isolation_level=isolation)]

    async def commit():
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(where, b"one", partition=0)
        same(await values("read_committed", 1), [b"one"], "what is read")

    async def abort():
        await producer.begin_transaction()
        await producer.send_and_wait(where, b"never", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(where, b"two", partition=0)
        same(await values("read_committed", 2), [b"one", b"two"], "what is read committed")
        same(await values("read_uncommitted", 3), [b"one", b"never", b"two"], "what is read uncommitted")

    async def offsets():
        group = f"group-{uuid.uuid4().hex[:8]}"
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition(where, 0): 3}, group)
        client = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group)
        await client.start()
        same(await client.committed(TopicPartition(where, 0)), 3, "the committed offset")
        await client.stop()

    for work in (commit, abort, offsets):
        await report(work.__name__, work)
    await producer.stop()


async def main():
    async with Session() as session:
        await globals()[f"part_{sys.argv[2]}"](session)


asyncio.run(main())
