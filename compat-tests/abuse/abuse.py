"""The bad-input test: wrong bytes over sockets, while a good client goes on undisturbed.

Garbage, half frames, huge and negative lengths and counts, versions and keys that do not exist, wrong record batches, a
compression bomb, senders that are slow or vanish, readers that never read. Each gets the protocol's error or a closed
connection. All the while a producer and a consumer run; all their records must arrive, once, in order, in reasonable
time; the broker must live, must not have panicked, and its memory must stay bounded.
"""
import contextlib
import random
import socket
import struct
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lib import wire
from lib.broker import Broker
from lib.program import main
from lib.scenarios import Failed, expect

GOOD, VICTIM, RECOMPRESSED = "good", "victim", "recompressed"
PATIENCE_S = 20  # a good record that takes longer was disturbed, however slow the machine is
GROWTH_MIB = 160  # more than one frame of the limit below, several times over
FRAME_LIMIT = 20_000_000
BOMB_MIB = 600
WIRE_TESTS = Path(__file__).resolve().parent.parent.parent / "tests/wire"
# Directory in tests/wire: key, first version with a flexible request header.
FLEXIBLE_FROM = {
    "produce": (0, 9), "fetch": (1, 12), "list_offsets": (2, 6), "metadata": (3, 9), "find_coordinator": (10, 3),
    "api_versions": (18, 3), "create_topics": (19, 5), "delete_topics": (20, 4), "delete_records": (21, 2),
    "init_producer_id": (22, 2), "offset_for_leader_epoch": (23, 4), "describe_configs": (32, 4), "alter_configs": (33, 2),
    "describe_log_dirs": (35, 2), "create_partitions": (37, 2), "incremental_alter_configs": (44, 1), "describe_quorum": (55, 0),
    "update_features": (57, 0), "describe_cluster": (60, 0), "describe_producers": (61, 0), "list_config_resources": (74, 0),
    "describe_topic_partitions": (75, 0),
}
CRASH_WORDS = (b"panicked", b"stack overflow", b"out of memory", b"memory allocation")


class GoodClient:
    """A producer and a consumer that keep going: one record every 10 ms, each read back and compared."""

    def __init__(self, broker):
        self.ended = threading.Event()
        self.sent, self.read = [], []
        self.latencies, self.errors = [], []
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": 2}
        self.producer = Producer({**settings, "linger.ms": 0, "enable.idempotence": True, "message.timeout.ms": 60_000})
        self.consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"})
        self.consumer.assign([TopicPartition(GOOD, 0, 0)])
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]
        for thread in self.threads:
            thread.start()

    def _produce(self):
        while not self.ended.wait(0.01):
            value = f"{len(self.sent)}".encode()
            begun = time.monotonic()
            self.producer.produce(GOOD, value, on_delivery=lambda error, _, begun=begun: self._delivered(error, begun))
            self.sent.append(value)
            self.producer.poll(0)
        if self.producer.flush(60):
            self.errors.append("records were never acknowledged")

    def _delivered(self, error, begun):
        self.latencies.append(time.monotonic() - begun)
        if error is not None:
            self.errors.append(str(error))

    def _consume(self):
        deadline = None
        while deadline is None or (len(self.read) < len(self.sent) and time.monotonic() < deadline):
            for message in self.consumer.consume(100, 0.1):
                if message.error() is None:
                    self.read.append(message.value())
                elif not message.error().retriable():
                    self.errors.append(str(message.error()))
            if self.ended.is_set() and deadline is None:
                self.threads[0].join(90)
                deadline = time.monotonic() + 60
        self.consumer.close()

    def finish(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(180)
        if self.errors:
            raise Failed(f"the good client saw errors: {self.errors[:3]}")
        expect(self.read == self.sent, True, f"all {len(self.sent)} records read once and in order ({len(self.read)} read)")
        ordered = sorted(self.latencies)
        p50, p99, worst = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]
        print(f"        good client: {len(ordered)} records, p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, "
              f"worst {worst * 1000:.0f} ms", flush=True)
        if worst > PATIENCE_S:
            raise Failed(f"a good record took {worst:.1f} s")


class Abuse:
    def __init__(self, broker, seed, promises):
        self.broker, self.dice, self.promises = broker, random.Random(seed), promises
        self.address = (broker.host, broker.port)
        self.golden = golden_requests()

    def send_and_leave(self, raw, wait_s=0.0):
        """Sends bytes, takes what comes back if we wait for it, and goes."""
        with contextlib.suppress(OSError), wire.connect(self.address, 5) as connection:
            connection.sendall(raw)
            if wait_s:
                connection.settimeout(wait_s)
                connection.recv(65536)

    def expect_closed(self, raw, what):
        """The broker must close the connection rather than let it hang."""
        with wire.connect(self.address, 15) as connection:
            try:
                connection.sendall(raw)
                while connection.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass
            except TimeoutError:
                raise Failed(f"{what}: the connection is still open") from None

    def still_answers(self):
        answer = wire.ask(self.address, wire.API_VERSIONS, 0)
        expect(struct.unpack(">h", answer[4:6])[0], 0, "the error code of a correct ApiVersions")

    # What is done to the broker. Each method is one check.

    def unknown_version_of_api_versions_is_answered(self):
        for version in (60, 99, 32767):
            answer = wire.ask(self.address, wire.API_VERSIONS, version, flexible=True)
            correlation, code, count = struct.unpack(">ihi", answer[:10])
            expect((correlation, code), (7, 35), f"correlation id and error for version {version}")
            ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:10 + 6 * count])}
            if wire.API_VERSIONS not in ranges:
                raise Failed(f"the answer to version {version} does not tell the served versions of ApiVersions: {ranges}")

    def garbage(self):
        for _ in range(150):
            self.send_and_leave(self.dice.randbytes(self.dice.randrange(1, 3000)))
        self.send_and_leave(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", 0.5)
        self.send_and_leave(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.dice.randbytes(500), 0.5)

    def lengths_that_cannot_be(self):
        for length in (-1, -(1 << 31), 0x7FFFFFFF, FRAME_LIMIT + 1, 0x47455420):
            self.expect_closed(wire.int32(length) + b"x" * 64, f"a frame of length {length}")
        for length in (0, 1, 7):
            self.expect_closed(wire.int32(length) + b"\0" * length, f"a frame of {length} bytes")

    def promised_but_never_sent(self):
        """Many frames that announce all that is allowed and send almost nothing."""
        with contextlib.ExitStack() as stack:
            for _ in range(self.promises):
                connection = stack.enter_context(wire.connect(self.address))
                connection.sendall(wire.int32(FRAME_LIMIT - 1) + wire.header(0, 7) + b"x" * 100)
            time.sleep(0.5)
            self.still_answers()

    def unknown_keys_and_versions(self):
        for key in (-1, 96, 500, 32767, 4, 5, 6, 7, 52, 53, 54, 56, 59, 62, 63):
            self.expect_closed(wire.request(key, 0, b"\0" * 20), f"request key {key}")
        for key in range(0, 50):
            if key != wire.API_VERSIONS:
                self.expect_closed(wire.request(key, 30_000, b"\0" * 20), f"version 30000 of key {key}")

    def impossible_counts(self):
        """Every key and version with a body that claims arrays and strings of impossible sizes."""
        bodies = [b"\x7f\xff\xff\xff" * 8, b"\xff\xff\xff\xff\x0f" * 8, b"\x80\0\0\0" * 8, b"\xff" * 64, b"\0\0\0\1" * 8, b""]
        for key in range(0, 95):
            for version in range(0, 20):
                with contextlib.suppress(OSError), wire.connect(self.address, 5) as connection:
                    for body in bodies:
                        connection.sendall(wire.request(key, version, body))
                        connection.sendall(wire.request(key, version, b"\0" + body))
            self.broker.check()

    def mutated_requests(self):
        """Correct requests with bytes changed, cut out, doubled or cut off."""
        for number in range(2500):
            raw = bytearray(self.dice.choice(self.golden))
            for _ in range(self.dice.randrange(1, 6)):
                at = self.dice.randrange(8, len(raw))
                kind = self.dice.randrange(4)
                if kind == 0:
                    raw[at] = self.dice.randrange(256)
                elif kind == 1:
                    raw[at:at + 4] = self.dice.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"])
                elif kind == 2:
                    del raw[at:at + self.dice.randrange(1, 9)]
                else:
                    raw[at:at] = self.dice.randbytes(self.dice.randrange(1, 9))
                if len(raw) < 16:
                    break
            whole = wire.int32(len(raw)) + bytes(raw)
            self.send_and_leave(whole[:self.dice.randrange(5, len(whole))] if number % 5 == 0 else whole)
            if number % 100 == 0:
                self.broker.check()

    def half_frames(self):
        """Connections that end, or stand still, in the middle of a frame; and some that vanish with a reset."""
        standing = []
        for raw in self.dice.sample(self.golden, min(len(self.golden), 40)):
            whole = wire.frame(raw)
            for cut in sorted({1, 3, 4, 5, len(whole) // 2, len(whole) - 1}):
                self.send_and_leave(whole[:cut])
                with contextlib.suppress(OSError):
                    connection = wire.connect(self.address)
                    connection.sendall(whole[:cut])
                    if cut % 2:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        connection.close()
                    else:
                        standing.append(connection)
        self.still_answers()
        for connection in standing:
            connection.close()

    def slow_senders(self):
        """A hundred connections, each sending a correct request one byte at a time; all must be answered in the end."""
        whole = wire.request(wire.API_VERSIONS, 0)
        connections = [wire.connect(self.address, 30) for _ in range(100)]
        for at in range(len(whole)):
            for connection in connections:
                connection.sendall(whole[at:at + 1])
            time.sleep(0.02)
        for connection in connections:
            expect(wire.receive(connection)[4:6], b"\0\0", "the answer to a slow sender")
            connection.close()

    def readers_that_never_read(self):
        """Connections that ask for a lot and never take an answer: the broker must stop reading from them."""
        metadata = wire.request(3, 1, wire.array([]) + b"") + wire.request(3, 1, wire.int32(-1))
        flood = (wire.request(wire.API_VERSIONS, 0) + metadata) * 200
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                connection = stack.enter_context(wire.connect(self.address))
                connection.setblocking(False)
                sent = 0
                deadline = time.monotonic() + 1.0
                while sent < 40_000_000 and time.monotonic() < deadline:
                    try:
                        sent += connection.send(flood)
                    except BlockingIOError:
                        time.sleep(0.01)
            self.still_answers()

    def many_idle_connections(self):
        with contextlib.ExitStack() as stack:
            for _ in range(500):
                stack.enter_context(wire.connect(self.address))
            self.still_answers()

    def wrong_record_batches(self):
        one = wire.record(b"value")
        wrong = {
            "a wrong CRC": wire.batch(one, crc=1),
            "magic 9": wire.batch(one, magic=9),
            "a length that is too long": wire.batch(one, length=5_000_000),
            "a length that is negative": wire.batch(one, length=-5),
            "a length that is too short": wire.batch(one, length=10),
            "a count that is too high": wire.batch(one, count=1000),
            "a negative count": wire.batch(one, count=-3),
            "a last offset delta that does not fit": wire.batch(one, last_delta=77),
            "an unknown codec": wire.batch(one, attributes=7),
            "gzip that is no gzip": wire.batch(b"this is no gzip at all", attributes=1),
            "zstd that is no zstd": wire.batch(b"this is no zstd at all", attributes=4),
            "a record of impossible length": wire.batch(wire.varint(1 << 40) + one),
            "two batches": wire.batch(one) + wire.batch(one),
            "a batch that is cut off": wire.batch(one)[:-3],
            "half a header": wire.batch(one)[:30],
            "noise": self.dice.randbytes(200),
        }
        for topic in (VICTIM, RECOMPRESSED):
            for what, records in wrong.items():
                try:
                    answer = wire.ask(self.address, 0, 7, wire.produce_body(topic, 0, records))
                except (EOFError, ConnectionError):
                    continue  # a closed connection is an answer too
                if wire.produce_error(answer, topic) == 0:
                    raise Failed(f"{what} was accepted by {topic}")
            answer = wire.ask(self.address, 0, 7, wire.produce_body(topic, 0, wire.batch(one)))
            expect(wire.produce_error(answer, topic), 0, f"the error code of a correct batch to {topic}")

    def a_compression_bomb(self):
        """A small batch that unpacks to hundreds of MiB, for a topic whose batches are compressed anew."""
        size = BOMB_MIB << 20
        body_length = 1 + 1 + 1 + 1 + len(wire.varint(size)) + size + 1
        head = wire.varint(body_length) + b"\0" + wire.varint(0) * 2 + wire.varint(-1) + wire.varint(size)
        packed = wire.gzipped([head, *[bytes(1 << 20)] * BOMB_MIB, b"\0"])
        for topic in (RECOMPRESSED, VICTIM):
            with contextlib.suppress(OSError, EOFError):
                wire.ask(self.address, 0, 7, wire.produce_body(topic, 0, wire.batch(packed, attributes=1)), limit_s=60)
        self.still_answers()


def golden_requests():
    """Correct requests, without their length, to be spoilt: some by hand, and those of tests/wire."""
    one = wire.batch(wire.record(b"value", key=b"key"))
    topic = wire.string(VICTIM)
    fetch = wire.int32(-1) + wire.int32(100) + wire.int32(1) + wire.int32(1 << 20) + b"\0" + wire.array(
        [topic + wire.array([wire.int32(0) + wire.int64(0) + wire.int32(1 << 20)])])
    create = wire.array([wire.string("mutant") + wire.int32(1) + wire.int16(1) + wire.array([]) + wire.array(
        [wire.string("retention.ms") + wire.string("1000")])]) + wire.int32(1000) + b"\1"
    bodies = [
        (0, 7, wire.produce_body(VICTIM, 0, one)), (1, 4, fetch), (3, 1, wire.array([topic])),
        (2, 1, wire.int32(-1) + wire.array([topic + wire.array([wire.int32(0) + wire.int64(-1)])])),
        (18, 0, b""), (19, 2, create), (22, 0, wire.string(None) + wire.int32(1000)),
        (32, 1, wire.array([wire.int8(2) + topic + wire.int32(-1)]) + b"\0"),
        (21, 0, wire.array([topic + wire.array([wire.int32(0) + wire.int64(0)])]) + wire.int32(1000)),
        (10, 1, wire.string("group") + b"\0"), (60, 0, b"\0\0"),
    ]
    requests = [wire.header(key, version) + body for key, version, body in bodies]
    return requests + captured_requests()


def captured_requests():
    """The request bodies that tests/wire holds as Kafka writes them, with a header before each."""
    requests = []
    for name, (key, first_flexible) in FLEXIBLE_FROM.items():
        for path in sorted(WIRE_TESTS.glob(f"{name}/v*.request*.hex")):
            version = int(path.name[1:].split(".")[0])
            requests.append(wire.header(key, version, 1, version >= first_flexible) + bytes.fromhex(path.read_text()))
    return requests


def checked(abuse, method, limits):
    """One kind of abuse; then the broker must still answer and not have grown beyond measure."""
    base = abuse.broker.memory_kib()
    method()
    abuse.broker.check()
    abuse.still_answers()
    growth = (abuse.broker.memory_kib() - base) // 1024
    if limits and growth > GROWTH_MIB:
        raise Failed(f"the broker grew by {growth} MiB")


def whole_run_is_bounded(broker, base_kib, limits):
    peak, now = broker.memory_kib("VmHWM"), broker.memory_kib()
    print(f"        memory: {base_kib >> 10} MiB before, {now >> 10} MiB after, {peak >> 10} MiB at most", flush=True)
    if limits and (peak - base_kib) >> 10 > 2 * GROWTH_MIB:
        raise Failed(f"the broker's memory peaked at {peak >> 10} MiB")
    log = broker.log.read_bytes()
    for word in CRASH_WORDS:
        if word in log:
            raise Failed(f"the broker's log speaks of {word.decode()!r}")
    if limits and len(log) > 30_000_000:
        raise Failed(f"the broker logged {len(log) >> 20} MiB")


def run(options, report):
    settings = {"socket.request.max.bytes": str(FRAME_LIMIT), "auto.create.topics.enable": "false"}
    broker = Broker(options.command, options.work, settings).start()
    good = None
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [NewTopic(GOOD, 1, 1), NewTopic(VICTIM, 1, 1), NewTopic(RECOMPRESSED, 1, 1, config={"compression.type": "zstd"})]
        for future in admin.create_topics(topics).values():
            future.result(30)
        good = GoodClient(broker)
        time.sleep(1)
        base_kib = broker.memory_kib()
        print(f"        seed {options.seed}", flush=True)
        abuse = Abuse(broker, options.seed, 60 if options.limits else 4)
        for method in [abuse.unknown_version_of_api_versions_is_answered, abuse.garbage, abuse.lengths_that_cannot_be,
                       abuse.promised_but_never_sent, abuse.unknown_keys_and_versions, abuse.impossible_counts,
                       abuse.mutated_requests, abuse.half_frames, abuse.slow_senders, abuse.readers_that_never_read,
                       abuse.many_idle_connections, abuse.wrong_record_batches, abuse.a_compression_bomb]:
            report.check(f"abuse: {method.__name__}", checked, abuse, method, bool(options.limits))
        report.check("abuse: a good client is not disturbed", good.finish)
        report.check("abuse: memory and log stay bounded", whole_run_is_bounded, broker, base_kib, bool(options.limits))
        report.check("abuse: the broker stops cleanly", broker.stop)
    finally:
        broker.close(keep=bool(report.failures))


if __name__ == "__main__":
    # limits=0 leaves out what says how much memory and log the broker may take, and makes fewer false promises: Kafka
    # itself sets memory aside for every frame that is announced.
    main(__doc__, run, seed=random.SystemRandom().randrange(1_000_000), limits=1)
