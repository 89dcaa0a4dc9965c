"""Stock clients that write and read while the cluster has faults, and what they have seen, as a history for the checker.

Two idempotent producers of confluent-kafka write all the time; franz-go and the Java client write small requests one after
the other. Two consumers read along. Record values are unique: `PRODUCER PARTITION NUMBER`.
"""
import logging
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from checker import History, Send
from lib.driver import Driver, Hang, Refused, encode
from lib.scenarios import Failed

PARTITIONS = 4
SEND_PAUSE_S = 0.01
READ_LIMIT_S = 60
# A client with default patience waits half a minute for a broker that hangs; the checks are about the cluster.
QUICK = {"socket.timeout.ms": 4000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
         "retry.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 1000, "log_level": 0}
# For the Java client, whose driver waits longer otherwise.
PATIENCE = {"request.timeout.ms": "4000", "delivery.timeout.ms": "29000"}


class Task:
    """Something that goes on in a thread until it is told to end."""

    def __init__(self, work):
        self.ended, self.failure = threading.Event(), None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work):
        try:
            while not self.ended.is_set():
                work()
        except Exception as failure:  # told by `end`, in the thread that can
            self.failure = failure

    def end(self, limit_s=READ_LIMIT_S):
        self.ended.set()
        self.thread.join(limit_s)
        if self.thread.is_alive():
            raise Failed("a client did not come to an end")
        if self.failure:
            raise self.failure


class OutOfOrder(logging.Handler):
    """Collects what librdkafka says of batches that were called out of order. It goes on under a new epoch then, and what it had
    no answer for comes into the log again.

    At a change of leader this is its own doing: it counts a failed request as ended before it has its records back in the queue
    (`rd_kafka_msgbatch_handle_Produce_result`), and the thread of the new leader may send later ones in between."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        message = record.getMessage()
        if "skipped sequence numbers" in message and "ProduceRequest" in message:
            self.messages.append(message)


class Streamer:
    """An idempotent producer of confluent-kafka that sends a record now and then and waits for nothing."""

    def __init__(self, cluster, topic, name):
        self.topic, self.name, self.sends, self.number = topic, name, [], 0
        self.acknowledged_at, self.errors = [[] for _ in range(PARTITIONS)], []
        log, self.out_of_order = logging.Logger(name, logging.DEBUG), OutOfOrder()
        log.addHandler(self.out_of_order)
        self.producer = Producer({
            "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000,
            "queue.buffering.max.messages": 2000, "error_cb": self._trouble, **QUICK, "debug": "eos", "log_level": 7}, logger=log)
        self.task = Task(self.step)

    def _trouble(self, error):
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def step(self):
        partition = self.number % PARTITIONS
        send = Send(self.name, partition, f"{self.name} {partition} {self.number}")
        try:
            self.producer.produce(self.topic, send.value.encode(), partition=partition,
                                  on_delivery=lambda error, message: self._delivered(send, error, message))
            self.sends.append(send)
            self.number += 1
        except BufferError:
            pass
        self.producer.poll(SEND_PAUSE_S)

    def _delivered(self, send, error, message):
        if error is not None:
            self.errors.append(f"{send.value}: {error}")
            return
        send.offset = message.offset()
        self.acknowledged_at[send.partition].append(time.monotonic())

    def finish(self):
        self.task.end()
        left = self.producer.flush(READ_LIMIT_S)
        if left or self.errors:
            raise Failed(f"{self.name}: {left} records were not acknowledged; errors: {self.errors[:5]}")
        for message in self.out_of_order.messages:
            print(f"        {self.name} may have repeated records: {message}", flush=True)

    def gap_s(self, begin, end):
        """The longest time without an acknowledgement in any partition."""
        longest = 0.0
        for stamps in self.acknowledged_at:
            inside = [begin, *(at for at in stamps if begin <= at <= end), end]
            longest = max(longest, *(after - before for before, after in zip(inside, inside[1:])))
        return longest


class Caller:
    """A client driver that sends a few records, waits for the answers, and does so again. An error leaves their fate open."""

    def __init__(self, command, cluster, topic, name, log):
        self.driver = Driver(name, command, cluster.bootstrap, log)
        self.topic, self.name, self.sends, self.number, self.refused = topic, name, [], 0, 0
        self.task = Task(self.step)

    def step(self):
        sends = []
        for _ in range(2 * PARTITIONS):
            partition = self.number % PARTITIONS
            sends.append(Send(self.name, partition, f"{self.name} {partition} {self.number}"))
            self.number += 1
        self.sends += sends
        records = [{"partition": send.partition, "key": None, "value": encode(send.value.encode()), "headers": []}
                   for send in sends]
        try:
            offsets = self.driver.call("produce", limit_s=90, topic=self.topic, records=records, settings=PATIENCE)
        except Refused:
            self.refused += 1
        else:
            for send, offset in zip(sends, offsets):
                send.offset = offset
        self.task.ended.wait(0.2)

    def finish(self):
        self.task.end(100)
        self.driver.close()


class Watcher:
    """A consumer of confluent-kafka that reads along from the beginning."""

    def __init__(self, cluster, topic, name):
        self.name, self.polled = name, []
        self.consumer = a_consumer(cluster)
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.task = Task(self.step)

    def step(self):
        for message in self.consumer.consume(500, 0.1):
            if message.error() is None:
                self.polled.append((message.partition(), message.offset(), message.value().decode()))

    def wait_until(self, ends):
        """Reads on until everything before `ends` was seen, or time is up; what is missing is the checker's to say."""
        deadline, last, at = time.monotonic() + READ_LIMIT_S, {}, 0
        while time.monotonic() < deadline:
            for partition, offset, _ in self.polled[at:]:
                last[partition] = offset
                at += 1
            if all(last.get(partition, -1) >= end - 1 for partition, end in ends.items()):
                break
            time.sleep(0.1)

    def finish(self):
        self.task.end()
        self.consumer.close()


def a_consumer(cluster):
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False,
                     "auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 100, **QUICK})


def create_topic(cluster, topic, replicas, partitions=PARTITIONS):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})
    admin.create_topics([NewTopic(topic, partitions, replicas)], operation_timeout=50, request_timeout=60)[topic].result(90)


class View:
    """What the cluster says of a topic."""

    def __init__(self, cluster, topic, count=PARTITIONS):
        self.topic, self.count, self.admin = topic, count, AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})

    def partitions(self):
        try:
            return self.admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions
        except (KafkaException, KeyError):
            return {}

    def await_full_isr(self, replicas, limit_s):
        begun = time.monotonic()
        self.await_that(f"the in-sync sets do not have {replicas} members each",
                        lambda told: all(len(p.isrs) == replicas and p.leader > 0 for p in told.values()), limit_s)
        return time.monotonic() - begun

    def await_that(self, complaint, holds, limit_s=30):
        deadline = time.monotonic() + limit_s
        while True:
            partitions = self.partitions()
            if len(partitions) == self.count and holds(partitions):
                return partitions
            if time.monotonic() > deadline:
                told = {n: (p.leader, p.isrs) for n, p in sorted(partitions.items())}
                raise Failed(f"{complaint} after {limit_s} s: {told}")
            time.sleep(0.05)


def read_log(cluster, topic):
    """The whole log, as partition -> [(offset, value)]."""
    consumer, log = a_consumer(cluster), {}
    try:
        for partition in range(PARTITIONS):
            deadline = time.monotonic() + READ_LIMIT_S
            end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            consumer.assign([TopicPartition(topic, partition, 0)])
            records = log[partition] = []
            while end > 0 and (not records or records[-1][0] < end - 1):
                if time.monotonic() > deadline:
                    raise Failed(f"partition {partition}: read {len(records)} records, then nothing more (it ends at {end})")
                records += [(m.offset(), m.value().decode()) for m in consumer.consume(5000, 0.2) if m.error() is None]
        return log
    finally:
        consumer.close()


def history_of(writers, watchers, log):
    history = History(final=log, caught_up={watcher.name for watcher in watchers})
    for writer in writers:
        history.sends += writer.sends
        if isinstance(writer, Streamer) and writer.out_of_order.messages:
            history.plain.add(writer.name)
    history.polls = {watcher.name: watcher.polled for watcher in watchers}
    return history
