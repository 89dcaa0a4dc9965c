"""The crash test: producers run, the broker is killed with SIGKILL at random moments and started again, over and over.

In the end every acknowledged record must be there exactly once, at the offset that the acknowledgement named, in the
order of its partition; an idempotent producer that lived through all the crashes must have left no duplicate and no
gap. A consumer that reads all the while must never have seen a record that is not there in the end, nor another one
at the same offset. A producer without idempotence may leave duplicates but must not lose what was acknowledged.

The moments of the kills come from a seed, which is printed: `--seed N` repeats them.
"""
import random
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lib.broker import Broker
from lib.program import main
from lib.scenarios import CODECS, Failed

PARTITIONS = 3
FLUSH_LIMIT_S = 120
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
         "topic.metadata.refresh.interval.ms": 2000, "log_level": 2}


class Writer:
    """One producer and what was acknowledged to it. Record values are `NAME PARTITION NUMBER padding`."""

    def __init__(self, broker, name, seed, **settings):
        self.name, self.topic, self.dice = name, f"crash-{name}", random.Random(seed)
        self.sent = [0] * PARTITIONS
        self.acknowledged = [{} for _ in range(PARTITIONS)]  # offset -> value
        self.errors = []
        self.count = 0
        self.producer = Producer({
            "bootstrap.servers": broker.bootstrap, "linger.ms": 3, "message.timeout.ms": 300_000, "socket.timeout.ms": 10_000,
            "queue.buffering.max.messages": 500, "error_cb": self._trouble, **QUICK, **settings})

    def _trouble(self, error):
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def step(self):
        """Sends a few records, unless the queue is full; takes the acknowledgements that have come."""
        for _ in range(self.dice.randrange(1, 20)):
            partition = self.dice.randrange(PARTITIONS)
            value = f"{self.name} {partition} {self.sent[partition]} ".encode() + b"." * self.dice.randrange(400)
            try:
                self.producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                break
            self.sent[partition] += 1
        self.producer.poll(0)

    def _delivered(self, error, message):
        if error is not None:
            self.errors.append(str(error))
            return
        self.count += 1
        known = self.acknowledged[message.partition()]
        if message.offset() in known:
            self.errors.append(f"offset {message.offset()} of {message.partition()} was acknowledged twice")
        known[message.offset()] = message.value()


class Watcher:
    """A consumer that reads along while the broker comes and goes."""

    def __init__(self, broker, topics):
        self.seen = {}
        self.contradictions = []
        self.ended = threading.Event()
        self.consumer = a_consumer(broker)
        self.consumer.assign([TopicPartition(t, p, 0) for t in topics for p in range(PARTITIONS)])
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ended.is_set():
            for message in self.consumer.consume(500, 0.1):
                if message.error() is None:
                    at = (message.topic(), message.partition(), message.offset())
                    if self.seen.setdefault(at, message.value()) != message.value():
                        self.contradictions.append(at)

    def close(self):
        self.ended.set()
        self.thread.join(30)
        self.consumer.close()


def create_topics(broker, topics):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(30)


def a_consumer(broker):
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "check.crcs": True, "fetch.wait.max.ms": 100, **QUICK})


def read_all(broker, topic, partition, upto):
    """Every record of a partition before the offset `upto`, as (offset, value)."""
    consumer = a_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        records, deadline = [], time.monotonic() + FLUSH_LIMIT_S
        while (not records or records[-1][0] < upto - 1) and upto > 0:
            if time.monotonic() > deadline:
                raise Failed(f"{topic}-{partition}: read {len(records)} records, then nothing more (the log ends at {upto})")
            records += [(m.offset(), m.value()) for m in consumer.consume(5000, 0.2) if m.error() is None]
        return records
    finally:
        consumer.close()


def end_of(broker, topic, partition):
    """Where a partition's log ends. A broker that has just started may not lead its partitions yet."""
    consumer, deadline = a_consumer(broker), time.monotonic() + 60
    try:
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def run_rounds(broker, writers, rounds, dice):
    """Kills and restarts while the writers write; some kills hit a broker that is still starting."""
    running = threading.Event()
    running.set()

    def write(writer):
        while running.is_set():
            writer.step()
            time.sleep(0.004)

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    slowest_s, before = 0.0, 0
    try:
        for number in range(rounds):
            time.sleep(dice.uniform(0.3, 3.0))
            broker.check()
            broker.kill()
            if dice.random() < 0.3:
                kill_while_starting(broker, dice.uniform(0.005, 0.15))
            broker.start()
            slowest_s = max(slowest_s, broker.started_in_s)
            if number % 10 == 9:
                count = sum(writer.count for writer in writers)
                print(f"        {number + 1} kills, {count} records acknowledged", flush=True)
                if count == before:
                    raise Failed("nothing was acknowledged during ten rounds")
                before = count
    finally:
        running.clear()
        for thread in threads:
            thread.join(10)
    print(f"        slowest restart {slowest_s:.2f} s", flush=True)
    for writer in writers:
        left = writer.producer.flush(FLUSH_LIMIT_S)
        if left or writer.errors:
            raise Failed(f"{writer.name}: {left} records were never acknowledged; errors: {writer.errors[:5]}")


def kill_while_starting(broker, after_s):
    broker.launch()
    time.sleep(after_s)
    broker.kill()


def verify(broker, writer, idempotent):
    for partition in range(PARTITIONS):
        where = f"{writer.topic}-{partition}"
        records = read_all(broker, writer.topic, partition, end_of(broker, writer.topic, partition))
        found = dict(records)
        if [offset for offset, _ in records] != list(range(len(records))):
            raise Failed(f"{where}: the offsets have gaps")
        for offset, value in writer.acknowledged[partition].items():
            if found.get(offset) != value:
                raise Failed(f"{where}: offset {offset} was acknowledged as {value[:40]} and holds {str(found.get(offset))[:40]}")
        if idempotent:
            numbers = [int(value.split(b" ", 3)[2]) for _, value in records]
            for position, number in enumerate(numbers):
                if number != position:
                    raise Failed(f"{where}: at offset {position} there is record {number}: lost, doubled or out of order")
            if len(numbers) != writer.sent[partition]:
                raise Failed(f"{where}: {writer.sent[partition]} records were sent, {len(numbers)} are there")


def verify_watcher(broker, watcher, topics):
    if watcher.contradictions:
        raise Failed(f"two records were seen at {watcher.contradictions[0]}")
    if not watcher.seen:
        raise Failed("the consumer that read along saw nothing")
    for topic in topics:
        for partition in range(PARTITIONS):
            found = dict(read_all(broker, topic, partition, end_of(broker, topic, partition)))
            for (seen_topic, seen_partition, offset), value in watcher.seen.items():
                if (seen_topic, seen_partition) == (topic, partition) and found.get(offset) != value:
                    raise Failed(f"{topic}-{partition}: a consumer saw a record at offset {offset} that is not there now")


def crash(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.rounds} rounds", flush=True)
    broker = Broker(options.command, options.work, {"log.segment.bytes": "1048576", "num.partitions": str(PARTITIONS)}).start()
    watcher = None
    try:
        writers = [Writer(broker, codec, options.seed + n, **{"enable.idempotence": True, "compression.type": codec})
                   for n, codec in enumerate(CODECS)]
        plain = Writer(broker, "plain", options.seed, **{"acks": 1, "enable.idempotence": False})
        everyone = [*writers, plain]
        topics = [writer.topic for writer in everyone]
        create_topics(broker, topics)
        watcher = Watcher(broker, topics)
        report.check("crash: producers go on over every kill", run_rounds, broker, everyone, options.rounds, dice)
        watcher.close()
        broker.check()
        if not report.failures:
            broker.stop()
            broker.start()
        for writer in writers:
            title = f"crash: {writer.name}: acknowledged records are there once and in order"
            report.check(title, verify, broker, writer, True)
        report.check("crash: acks=1 without idempotence loses nothing acknowledged", verify, broker, plain, False)
        report.check("crash: consumers saw nothing that vanished", verify_watcher, broker, watcher, topics)
        broker.stop()
    finally:
        if watcher:
            watcher.close() if not watcher.ended.is_set() else None
        broker.close(keep=bool(report.failures))


if __name__ == "__main__":
    main(__doc__, crash, rounds=40, seed=random.SystemRandom().randrange(1_000_000))
