"""The scenarios: one list, run through every client. A scenario is a function of a `Subject`; it fails by raising.

Each record read back is compared with what was sent: key, value, headers, partition order, offset and timestamp. What a client
cannot do (kcat has no admin commands) is done for it by the helper, which is confluent-kafka; a scenario whose very point the
client cannot do is not counted for it.
"""
import inspect
import random
import time

from lib.driver import Refused, decode, encode

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MIB = 1 << 20
LIST = []


class Failed(Exception):
    """What was seen is not what was to be seen."""


def scenario(function):
    LIST.append(function)
    return function


def needs(*operations):
    def mark(function):
        function.needs = set(operations)
        return function
    return mark


def expect(seen, wanted, what):
    if seen != wanted:
        raise Failed(f"{what}: expected {shorten(wanted)}, got {shorten(seen)}")


def shorten(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


def refused(name, call, *arguments, **named):
    """`call` must be refused with the error `name`, which may be a set of names."""
    names = {name} if isinstance(name, str) else name
    try:
        call(*arguments, **named)
    except Refused as refusal:
        if refusal.name not in names:
            raise Failed(f"expected a refusal with {' or '.join(sorted(names))}, got {refusal}") from None
    else:
        raise Failed(f"expected a refusal with {' or '.join(sorted(names))}, but it was accepted")


class Subject:
    """One client under test: its driver, a helper for what it cannot do, and names of topics that nobody else uses."""

    def __init__(self, driver, helper, broker, everybody):
        self.driver, self.helper, self.broker, self.everybody = driver, helper, broker, everybody
        self.features = driver.features
        self.name = driver.name

    def topic(self, suffix=""):
        caller = inspect.stack()[1].function
        return f"{caller}{suffix}-{self.name}".replace("_", "-")

    def able(self, op):
        return self.driver if op in self.driver.can else self.helper

    def call(self, op, **arguments):
        return self.able(op).call(op, **arguments)

    def create(self, topic, partitions=1, **configs):
        self.call("create_topic", topic=topic, partitions=partitions, configs={n.replace("_", "."): v for n, v in configs.items()})

    def send(self, topic, records, **options):
        before = int(time.time() * 1000)
        offsets = self.driver.call("produce", topic=topic, records=records, **options)
        return offsets, before

    def read(self, topic, partition, count, offset=0, reader=None, **options):
        return (reader or self.driver).call("fetch", topic=topic, partition=partition, offset=offset, count=count, **options)

    def round_trip(self, topic, records, **options):
        """Sends `records`, reads every partition back and compares."""
        offsets, before = self.send(topic, records, **options)
        after = int(time.time() * 1000)
        for partition in sorted({record["partition"] for record in records}):
            sent = [record for record in records if record["partition"] == partition]
            got = self.read(topic, partition, len(sent))
            compare(sent, got, self.driver, self.driver, (before, after))
        if offsets is not None and options.get("acks") != "0":
            following = {}
            for record, offset in zip(records, offsets):
                expect(offset, following.get(record["partition"], 0), "the acknowledged offset")
                following[record["partition"]] = offset + 1


def compare(sent, got, writer, reader, window, append_time=False):
    """Compares what one client read with what another (or the same) sent to one partition, record by record."""
    expect(len(got), len(sent), "the number of records read")
    for index, (wanted, seen) in enumerate(zip(sent, got)):
        which = f"record {index}"
        expect(seen["offset"], index, f"{which}, offset")
        expect(seen["key"], wanted["key"], f"{which}, key")
        expect(seen["value"], wanted["value"], f"{which}, value")
        expect([list(h) for h in seen["headers"]], [list(h) for h in wanted["headers"]], f"{which}, headers")
        kind = "append" if append_time else "create"
        if seen["timestamp_type"] is not None:
            expect(seen["timestamp_type"], kind, f"{which}, timestamp type")
        stamp = wanted.get("timestamp")
        if stamp is not None and writer.features.get("timestamps", True) and not append_time:
            expect(seen["timestamp"], stamp, f"{which}, timestamp")
        elif not window[0] - 5 <= seen["timestamp"] <= window[1] + 5:
            raise Failed(f"{which}: the timestamp {seen['timestamp']} is not between {window[0]} and {window[1]}")


# Records

def record(key, value, headers=(), partition=0, timestamp=None):
    as_bytes = lambda part: part.encode() if isinstance(part, str) else part
    return {"key": encode(as_bytes(key)), "value": encode(as_bytes(value)), "partition": partition, "timestamp": timestamp,
            "headers": [[name, encode(as_bytes(part))] for name, part in headers]}


def sample(subject, partitions=1):
    """Records of every shape that this client can send, over some partitions."""
    if subject.features.get("partitions") is False:
        partitions = 1
    kind = subject.features.get("records", "all")
    at = int(time.time() * 1000) - 60_000
    shapes = [
        ("key", "value", ()),
        (None, "a value without a key", ()),
        ("umlaut-ü", "snow ☃ and text", (("one", "1"), ("two", "zwei"))),
        ("repeated", "abc" * 3000, ()),
        ("tombstone", None, ()),
    ]
    if kind in ("all", "text"):
        shapes += [("empty value", "", ()), ("", "empty key", ()), ("", "", ()), ("same header twice", "v", (("h", "1"), ("h", "2")))]
        shapes += [(None, None, ()), ("null header", "v", (("h", None),))]
    if kind == "kcat":
        # In one run kcat sends every empty part as null or none of them.
        shapes += [("header", "v", (("h", "1"),)), ("header too", "w", (("h", "1"),))]
    if kind == "all":
        noise = random.Random(7)
        shapes += [(bytes(range(256)), noise.randbytes(5000), (("bytes", noise.randbytes(40)), ("", b"")))]
    shapes += [(f"k{n}", f"value {n} " * (n % 7 + 1), ()) for n in range(40)]
    return [record(*shape, partition=n % partitions, timestamp=at + n) for n, shape in enumerate(shapes)]


# Administration

@scenario
@needs("create_topic")
def topics_are_created_and_deleted(subject):
    topic = subject.topic()
    subject.create(topic, partitions=3)
    if topic not in subject.call("list_topics"):
        raise Failed("the list lacks the new topic")
    described = subject.call("describe_topic", topic=topic)
    expect([p["id"] for p in described], [0, 1, 2], "the partitions")
    for partition in described:
        expect((partition["leader"], partition["replicas"], partition["isr"]), (1, [1], [1]), "leader, replicas, in sync")
    refused("TOPIC_ALREADY_EXISTS", subject.create, topic)
    subject.call("delete_topic", topic=topic)
    refused("UNKNOWN_TOPIC_OR_PARTITION", subject.call, "describe_topic", topic=topic)
    subject.create(topic, partitions=1)
    expect(len(subject.call("describe_topic", topic=topic)), 1, "the partitions of the topic created again")
    subject.call("delete_topic", topic=topic)


@scenario
@needs("create_topic")
def wrong_topics_are_refused(subject):
    refused("INVALID_TOPIC_EXCEPTION", subject.create, "no spaces allowed")
    refused({"INVALID_REPLICATION_FACTOR"}, subject.call, "create_topic", topic=subject.topic(), partitions=1, replication=3)
    refused({"INVALID_CONFIG"}, subject.create, subject.topic("-config"), retention_ms="soon")


@scenario
@needs("create_partitions")
def partitions_are_added(subject):
    topic = subject.topic()
    subject.create(topic, partitions=2)
    subject.call("create_partitions", topic=topic, total=4)
    expect(len(subject.call("describe_topic", topic=topic)), 4, "the partitions")
    refused("INVALID_PARTITIONS", subject.call, "create_partitions", topic=topic, total=3)


@scenario
@needs("alter_config", "describe_config")
def topic_configs_are_set_and_reset(subject):
    topic = subject.topic()
    subject.create(topic, retention_ms="1234567")
    config = subject.call("describe_config", topic=topic)
    expect((config["retention.ms"], config["cleanup.policy"]), ("1234567", "delete"), "retention.ms and cleanup.policy")
    subject.call("alter_config", topic=topic, set={"retention.ms": "7654321", "cleanup.policy": "compact,delete"})
    config = subject.call("describe_config", topic=topic)
    expect((config["retention.ms"], config["cleanup.policy"]), ("7654321", "compact,delete"), "the altered settings")
    subject.call("alter_config", topic=topic, set={}, delete=["retention.ms", "cleanup.policy"])
    config = subject.call("describe_config", topic=topic)
    expect((config["retention.ms"], config["cleanup.policy"]), ("604800000", "delete"), "the defaults after a reset")
    refused("INVALID_CONFIG", subject.call, "alter_config", topic=topic, set={"segment.bytes": "many"})


@scenario
@needs("describe_cluster")
def the_cluster_is_described(subject):
    cluster = subject.call("describe_cluster")
    expect((cluster["nodes"], len(cluster["id"])), ([1], 22), "nodes, length of the cluster id")


@scenario
@needs("describe_topic")
def metadata_names_the_leader(subject):
    topic = subject.topic()
    subject.create(topic, partitions=2)
    described = subject.driver.call("describe_topic", topic=topic)
    expect([(p["id"], p["leader"]) for p in described], [(0, 1), (1, 1)], "partitions and their leaders")


# Producing and reading

def codec_scenario(codec):
    @needs("produce", "fetch")
    def run(subject):
        topic = f"codec-{codec}-{subject.name}"
        records = sample(subject, partitions=2)
        subject.create(topic, partitions=len({r["partition"] for r in records}))
        subject.round_trip(topic, records, compression=codec)
    run.__name__ = f"records_survive_with_{codec}"
    scenario(run)


for one in CODECS:
    codec_scenario(one)


@scenario
@needs("produce", "fetch")
def producers_without_idempotence(subject):
    for acks in ["1", "0"] if not subject.features.get("slow") else ["1"]:
        topic = subject.topic(f"-acks-{acks}")
        subject.create(topic)
        subject.round_trip(topic, [record(f"k{n}", f"v{n}") for n in range(20)], acks=acks, idempotent=False)


@scenario
@needs("produce", "fetch")
def a_record_of_one_mebibyte(subject):
    topic = subject.topic()
    subject.create(topic, max_message_bytes=str(3 * MIB))
    text = subject.features.get("records") == "text"
    value = "0123456789abcdef" * (MIB // 16) if text else random.Random(11).randbytes(MIB)
    records = [record("before", "small"), record("big", value), record("after", "small")]
    subject.round_trip(topic, records)


@scenario
@needs("produce")
def a_record_beyond_the_limit_is_refused(subject):
    topic = subject.topic()
    subject.create(topic, max_message_bytes="50000")
    names = {"MESSAGE_TOO_LARGE", "MSG_SIZE_TOO_LARGE", "RECORD_TOO_LARGE"}
    refused(names, subject.send, topic, [record("k", random.Random(3).randbytes(80_000).hex())])
    subject.round_trip(topic, [record("k", "still served")])


@scenario
@needs("produce", "fetch")
def many_batches_stay_in_order(subject):
    topic = subject.topic()
    partitions = 1 if subject.features.get("partitions") is False else 3
    subject.create(topic, partitions=partitions)
    each = 2500 // partitions
    records = [record(f"key {n}", f"value {n} " + "x" * (n % 200), partition=p) for p in range(partitions) for n in range(each)]
    subject.round_trip(topic, records, compression="lz4")


@scenario
@needs("produce", "fetch")
def topics_appear_when_written_to(subject):
    subject.round_trip(subject.topic(), [record("first", "record")])


@scenario
@needs("produce", "fetch")
def log_append_time(subject):
    topic = subject.topic()
    subject.create(topic, message_timestamp_type="LogAppendTime")
    records = [record(f"k{n}", f"v{n}", timestamp=1_700_000_000_000 + n) for n in range(10)]
    _, before = subject.send(topic, records, compression="gzip")
    got = subject.read(topic, 0, len(records))
    compare(records, got, subject.driver, subject.driver, (before, int(time.time() * 1000)), append_time=True)


@scenario
@needs("produce", "fetch")
def the_broker_recompresses(subject):
    topic = subject.topic()
    subject.create(topic, compression_type="zstd")
    subject.round_trip(topic, sample(subject), compression="gzip")


@scenario
@needs("fetch")
def a_waiting_fetch_gets_what_comes_later(subject):
    topic = subject.topic()
    subject.create(topic)
    subject.helper.call("produce", topic=topic, records=[record("k", "old")])
    waiting = subject.everybody.another(subject.name)
    try:
        waiting.send("fetch", topic=topic, partition=0, offset=1, count=1)
        time.sleep(1.5)
        subject.helper.call("produce", topic=topic, records=[record("k", "new")])
        got = waiting.receive("fetch")
        expect([(r["offset"], decode(r["value"])) for r in got], [(1, b"new")], "what the waiting consumer got")
    finally:
        waiting.close()


# Offsets

@scenario
@needs("list_offset")
def offsets_by_time(subject):
    topic = subject.topic()
    subject.create(topic, retention_ms="-1", message_timestamp_type="CreateTime")
    at = 1_700_000_000_000
    stamps = [at, at + 1000, at + 5000, at + 2000, at + 9000]
    for stamp in stamps:
        subject.helper.call("produce", topic=topic, records=[record("k", "v", timestamp=stamp)])
    asked = [("earliest", 0), ("latest", 5), (str(at), 0), (str(at + 1), 1), (str(at + 1001), 2), (str(at + 5001), 4)]
    if subject.features.get("max_timestamp", True):
        asked.append(("max_timestamp", 4))
    for spec, wanted in asked:
        expect(subject.call("list_offset", topic=topic, partition=0, spec=spec), wanted, f"the offset for {spec}")


@scenario
@needs("delete_records")
def records_are_deleted(subject):
    topic = subject.topic()
    subject.create(topic)
    records = [record(f"k{n}", f"v{n}") for n in range(30)]
    subject.helper.call("produce", topic=topic, records=records)
    expect(subject.call("delete_records", topic=topic, partition=0, before=12), 12, "the low watermark")
    expect(subject.call("list_offset", topic=topic, partition=0, spec="earliest"), 12, "the earliest offset")
    got = subject.read(topic, 0, 18, offset=12)
    expect([r["offset"] for r in got], list(range(12, 30)), "the offsets that are left")
    if not subject.features.get("slow"):
        refused("OFFSET_OUT_OF_RANGE", subject.read, topic, 0, 1, offset=3)
    refused("OFFSET_OUT_OF_RANGE", subject.call, "delete_records", topic=topic, partition=0, before=99)


@scenario
@needs("log_dirs")
def log_directories_tell_sizes(subject):
    topic = subject.topic()
    subject.create(topic)
    subject.helper.call("produce", topic=topic, records=[record("k", "v" * 5000)])
    size = subject.call("log_dirs").get(f"{topic}-0", 0)
    if not 5000 <= size <= 6000:
        raise Failed(f"the partition's size is told as {size} bytes")


# Groups

def group_records(first, count):
    return [record(None, f"value {n}", partition=n % 4) for n in range(first, first + count)]


def places(records):
    return sorted((r["partition"], r["offset"]) for r in records)


def group_scenario(protocol):
    @needs("read_as_group")
    def run(subject):
        """Two members share the partitions out and commit; who comes later goes on where they have stopped."""
        if protocol not in subject.features.get("group_protocols", ["classic", "consumer"]):
            return
        topic = group = f"shared-{protocol}-{subject.name}"
        subject.create(topic, partitions=4)
        subject.helper.call("produce", topic=topic, records=group_records(0, 40))
        got = subject.driver.call("read_as_group", topic=topic, group=group, count=40, members=2, protocol=protocol)
        expect(places(got), [(p, o) for p in range(4) for o in range(10)], "partitions and offsets, each once")
        expect(sorted(decode(r["value"]) for r in got), sorted(f"value {n}".encode() for n in range(40)), "the values")
        expect(subject.call("committed", group=group, topic=topic), {str(p): 10 for p in range(4)}, "the committed offsets")
        subject.helper.call("produce", topic=topic, records=group_records(40, 8))
        got = subject.driver.call("read_as_group", topic=topic, group=group, count=8, members=1, protocol=protocol)
        expect(places(got), [(p, o) for p in range(4) for o in (10, 11)], "what came later")
        if group not in subject.call("list_groups"):
            raise Failed("the list lacks the group")
        expect(subject.helper.call("describe_group", group=group), {"state": "EMPTY", "members": 0}, "the group without members")
        subject.call("delete_group", group=group)
        refused("GROUP_ID_NOT_FOUND", subject.call, "delete_group", group=group)
    run.__name__ = f"{protocol}_groups_share_a_topic"
    scenario(run)


for one in ["classic", "consumer"]:
    group_scenario(one)


@scenario
@needs("begin_by_duration")
def a_group_begins_so_long_ago(subject):
    """`auto.offset.reset=by_duration`: a group without offsets begins with the first record that is no older."""
    topic = subject.topic()
    subject.create(topic)
    now = int(time.time() * 1000)
    subject.helper.call("produce", topic=topic, records=[record(None, f"{hours} hours ago", timestamp=now - hours * 3_600_000) for hours in (5, 3, 1, 0)])
    for protocol in ["classic", "consumer"]:
        got = subject.driver.call("read_as_group", topic=topic, group=f"{topic}-{protocol}", count=2, protocol=protocol, reset="by_duration:PT2H")
        expect([r["offset"] for r in got], [2, 3], f"what is read since two hours ago by the {protocol} protocol")


@scenario
@needs("reset_group")
def group_offsets_are_reset(subject):
    topic = group = subject.topic()
    subject.create(topic)
    subject.helper.call("produce", topic=topic, records=[record(None, f"value {n}") for n in range(20)])
    subject.call("read_as_group", topic=topic, group=group, count=20)
    for to, offset in [(["--to-earliest"], 0), (["--to-latest"], 20), (["--shift-by", "-4"], 16), (["--to-offset", "7"], 7)]:
        subject.call("reset_group", group=group, topic=topic, to=to)
        expect(subject.call("committed", group=group, topic=topic), {"0": offset}, " ".join(to))
    got = subject.call("read_as_group", topic=topic, group=group, count=13)
    expect(places(got), [(0, offset) for offset in range(7, 20)], "what is read after the reset")


@scenario
@needs("fetch")
def what_others_wrote_is_read(subject):
    """Every client reads what every other client wrote with each codec. The writers' topics come from their own runs."""
    for writer in subject.everybody.finished:
        codecs = CODECS[:1] + CODECS[-1:] if subject.features.get("slow") else CODECS
        for codec in codecs:
            sent = [r for r in sample(writer, 2) if r["partition"] == 0]
            if not readable(sent, subject):
                sent = None
            got = subject.read(f"codec-{codec}-{writer.name}", 0, 1 if sent is None else len(sent))
            if sent is not None:
                whole = [dict(r, timestamp=None) for r in sent]
                compare(whole, got, writer.driver, subject.driver, (0, int(time.time() * 1000)))


def readable(records, subject):
    """Whether this reader can show these records apart: text formats cannot show all bytes."""
    return subject.features.get("records", "all") == "all" or not any(
        r["headers"] and any(v is None or v == "" or not name for name, v in r["headers"]) or not printable(r) for r in records)


def printable(wanted):
    parts = [decode(wanted["key"]), decode(wanted["value"]), *(decode(value) for _, value in wanted["headers"])]
    try:
        return all(part is None or part.decode().isprintable() for part in parts)
    except UnicodeDecodeError:
        return False
