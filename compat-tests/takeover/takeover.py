"""The takeover test: partition directories written by Apache Kafka are served by the broker under test, and the reverse.

How: Kafka 4.4 (our own launcher, jars by Maven) writes topics with every codec, several segments, headers, null keys and
values, idempotent producers and transactions, and stops. The broker under test makes the same topics, so that they have an
identity in its metadata, and stops too. Then the files of each partition directory are copied over: all but
`partition.metadata`, which holds the topic id and so belongs to the cluster, not to the data. The broker starts again, serves
all records and takes new ones after them. Its own directories then pass Kafka's kafka-dump-log (records decoded, indexes
checked), and go back into Kafka in the same way.
"""
import os
import random
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from lib import dump_log, toolchain
from lib.broker import Broker
from lib.program import main
from lib.scenarios import CODECS, Failed, expect

OFFSETS_PARTITIONS = 50  # offsets.topic.num.partitions
PARTITIONS = 2
TOPICS = [f"taken-{codec}" for codec in CODECS] + ["taken-transactions"]
CONFIGS = {"segment.bytes": "1048576", "index.interval.bytes": "512", "retention.ms": "-1"}
STAMP = 1_700_000_000_000
EACH = 3000
LIMIT_S = 60


def create_topics(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=CONFIGS) for topic in TOPICS]).values():
        future.result(LIMIT_S)


def produce(broker, topic, start, count, codec="none", transactions=(), idempotent=True):
    """Records `start..start+count` into every partition; with transactions a batch of them for each of the outcomes."""
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent, "compression.type": codec, "linger.ms": 2,
                "batch.size": 20_000, "log_level": 0}
    if transactions:
        settings["transactional.id"] = f"taker-{start}"
    producer, errors = Producer(settings), []
    delivered = lambda error, _: errors.append(error) if error is not None else None
    if transactions:
        producer.init_transactions(LIMIT_S)
    for outcome in transactions or [None]:
        if outcome:
            producer.begin_transaction()
        for number in range(start, start + count):
            key, value, headers = content(number)
            for partition in range(PARTITIONS):
                while True:
                    try:
                        producer.produce(topic, value, key, partition, on_delivery=delivered, timestamp=STAMP + number * 10, headers=headers)
                        break
                    except BufferError:
                        producer.poll(0.1)
        if outcome == "commit":
            producer.commit_transaction(LIMIT_S)
        elif outcome == "abort":
            producer.flush(LIMIT_S)
            producer.abort_transaction(LIMIT_S)
    if producer.flush(LIMIT_S) or errors:
        raise Failed(f"{topic}: not all was written: {errors[:3]}")


def content(number):
    key = None if number % 5 == 0 else f"key {number}".encode()
    # Noise, so that every codec fills several segments.
    value = None if number % 7 == 0 else f"value {number} ".encode() + random.Random(number).randbytes(number % 60 * 20)
    return key, value, [("number", str(number).encode())] if number % 3 == 0 else None


def read(broker, topic, partition, committed=False):
    """All records of a partition as (offset, timestamp, key, value, headers)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
                         "auto.offset.reset": "error", "enable.partition.eof": True, "log_level": 0,
                         "isolation.level": "read_committed" if committed else "read_uncommitted"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        records, deadline = [], time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    records.append((message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers()))
                elif message.error().name() == "_PARTITION_EOF":
                    return records
                elif not message.error().retriable():
                    raise Failed(f"{topic}-{partition}: {message.error()}")
        raise Failed(f"{topic}-{partition}: no end after {LIMIT_S} s, {len(records)} records")
    finally:
        consumer.close()


def read_everything(broker, committed=False):
    return {(topic, p): read(broker, topic, p, committed) for topic in TOPICS for p in range(PARTITIONS)}


def check_written(records):
    """What was written by `produce` is what is read."""
    for (topic, partition), got in records.items():
        if topic == "taken-transactions":
            continue
        expect(len(got), EACH, f"{topic}-{partition}: the number of records")
        for number, seen in enumerate(got):
            key, value, headers = content(number)
            expect(seen, (number, STAMP + number * 10, key, value, headers), f"{topic}-{partition}: record {number}")


def compare(wanted, seen):
    for where, records in wanted.items():
        for before, after in zip(records, seen[where]):
            expect(after, before, f"{where}: the record at offset {before[0]}")
        expect(len(seen[where]), len(records), f"{where}: the number of records")


def copy_partitions(source, target):
    """Puts the files of each partition in place of those that the target has. Both brokers have stopped."""
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            here, there = source.data / f"{topic}-{partition}", target.data / f"{topic}-{partition}"
            for old in there.iterdir():
                if old.name != "partition.metadata":
                    old.unlink()
            for new in here.iterdir():
                if new.name != "partition.metadata":
                    shutil.copy2(new, there / new.name)


def offsets_by_time(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in (0, 1, 777, EACH - 1):
        for shift, wanted in ((0, number), (-3, number)):
            asked = {TopicPartition("taken-none", 1): OffsetSpec.for_timestamp(STAMP + number * 10 + shift)}
            for future in admin.list_offsets(asked, request_timeout=LIMIT_S).values():
                expect(future.result(LIMIT_S).offset, wanted, f"the offset for the time of record {number}{shift:+}")


def goes_on(broker, topics):
    """New records come after the old ones. Their producers are not idempotent: each cluster counts its producer ids from
    zero, and the logs still know those of the cluster that they come from."""
    for topic in topics:
        before = read(broker, topic, 0)
        produce(broker, topic, EACH, 50, idempotent=False)
        after = read(broker, topic, 0)
        expect(after[:len(before)], before, f"{topic}: the old records")
        expect([r[3] for r in after[len(before):]], [content(n)[1] for n in range(EACH, EACH + 50)], f"{topic}: the new records")
        if [r[0] for r in after[len(before):]] != list(range(after[-1][0] - 49, after[-1][0] + 1)):
            raise Failed(f"{topic}: the new records have offsets {[r[0] for r in after[len(before):]][:3]}...")


def dump(broker):
    """How many records kafka-dump-log finds in all partitions."""
    directories = [broker.data / f"{topic}-{p}" for topic in TOPICS for p in range(PARTITIONS)]
    segments = len([file for file in dump_log.files(directories) if file.suffix == ".log"])
    if segments < 2 * len(CODECS) * PARTITIONS:
        raise Failed(f"there are too few segments for this test to mean much: {segments}")
    return sum(map(len, dump_log.dump(directories, broker.work / "dump.txt").values()))


def dumped_in_full(broker, at_least):
    count = dump(broker)
    print(f"        kafka-dump-log decoded {count} records", flush=True)
    if count < at_least:
        raise Failed(f"kafka-dump-log decoded {count} records, at least {at_least} are there")


def metadata_exported(broker):
    """The metadata, exported as a snapshot of Kafka's, through Kafka's own decoder: every topic and every partition is there."""
    binary = broker.command[0]
    done = subprocess.run([binary, "metadata", "export", "--config", str(broker.config), str(broker.work)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise Failed(f"floodmark metadata export ended with {done.returncode}: {done.stderr[-500:]}")
    command = [*toolchain.java("org.apache.kafka.tools.DumpLogSegments", heap="128m"), "--cluster-metadata-decoder", "--files", done.stdout.strip()]
    decoded = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    text = decoded.stdout + decoded.stderr
    if decoded.returncode != 0 or "Exception" in text or "isvalid: false" in text:
        raise Failed(f"kafka-dump-log ended with {decoded.returncode}: {text[-500:]}")
    for topic in TOPICS:
        expect(text.count(f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{topic}"'), 1, f"the record of topic {topic}")
    # Consumers of the checks have a group, so the topic of offsets may be there too.
    internal = OFFSETS_PARTITIONS if '"name":"__consumer_offsets"' in text else 0
    expect(text.count('"type":"PARTITION_RECORD"'), len(TOPICS) * PARTITIONS + internal, "the number of partition records")


def takeover(options, report):
    kafka = Broker(shlex.split(os.environ["KAFKA_COMMAND"]), options.work / "kafka")
    ours = Broker(options.command, options.work / "ours")
    try:
        kafka.start()
        create_topics(kafka)
        for codec, topic in zip(CODECS, TOPICS):
            produce(kafka, topic, 0, EACH, codec)
        produce(kafka, "taken-transactions", 0, 200, transactions=["commit", "abort", "commit"])
        written = read_everything(kafka)
        report.check("takeover: Kafka wrote what was sent", check_written, written)
        kafka.stop()

        ours.start()
        create_topics(ours)
        ours.stop()
        copy_partitions(kafka, ours)
        ours.start()
        report.check("takeover: records that Kafka wrote are served", lambda: compare(written, read_everything(ours)))
        report.check("takeover: offsets by time come from Kafka's indexes", offsets_by_time, ours)
        report.check("takeover: new records follow the old ones", goes_on, ours, TOPICS)
        everything = read_everything(ours)
        ours.stop()
        count = sum(len(records) for records in everything.values())
        report.check("takeover: kafka-dump-log --deep-iteration reads our directories", dumped_in_full, ours, count)

        copy_partitions(ours, kafka)
        kafka.start()
        report.check("takeover: Kafka serves what we wrote", lambda: compare(everything, read_everything(kafka)))
        kafka.stop()
        written_by_us(options, report)
    finally:
        for broker in (kafka, ours):
            broker.close(keep=bool(report.failures))


def written_by_us(options, report):
    """Directories that no Kafka has touched: several segments of every codec, dumped after a clean stop and after a kill."""
    ours = Broker(options.command, options.work / "fresh").start()
    try:
        create_topics(ours)
        for codec, topic in zip([*CODECS, "lz4"], TOPICS):
            produce(ours, topic, 0, EACH, codec)
        ours.kill()
        ours.start()
        everything = read_everything(ours)
        report.check("takeover: our own records survive a kill", check_written, everything)
        ours.stop()
        count = EACH * PARTITIONS * len(TOPICS)
        report.check("takeover: kafka-dump-log reads what only we wrote", dumped_in_full, ours, count)
        if "--config" in ours.command:
            report.check("takeover: kafka-dump-log reads our metadata export", metadata_exported, ours)
    finally:
        ours.close(keep=bool(report.failures))


if __name__ == "__main__":
    main(__doc__, takeover)
