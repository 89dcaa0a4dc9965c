"""The full disk: a broker on a small file system, which clients fill, and then somebody else to the last byte.

Records are refused before the broker's reserve is touched, with Kafka's code and one line in the log; reading, committing
offsets, creating and deleting topics and records go on; producing goes on by itself when there is room. The broker stops and
starts while there is none, also with no free byte and after `kill -9`, so that topics can be deleted.

It mounts a tmpfs and an ext4 in a file, which needs root and mkfs.ext4: it fails without them.
"""
import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from lib.broker import Broker
from lib.mount import Mount
from lib.program import main
from lib.scenarios import Failed, expect
from lib.toolchain import Missing, apt_install

SIZE_MB = 64
RESERVE = 4 << 20
VALUE = os.urandom(50_000)
WAIT_S = 60
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.dir.reserve.bytes": str(RESERVE),
}


class Client:
    def __init__(self, broker):
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self.acknowledged = {}

    def create(self, *topics):
        for future in self.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            future.result(30)

    def delete(self, topic):
        for future in self.admin.delete_topics([topic]).values():
            future.result(30)

    def produce(self, topic, count=1):
        """Sends records one after the other; the first error, if one comes."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "acks": "all", "retries": 0, "linger.ms": 0, "log_level": 0,
                    "message.timeout.ms": 10_000}
        producer, errors = Producer(settings), []
        for _ in range(count):
            def delivered(error, message):
                if error:
                    errors.append(error.code())
                else:
                    self.acknowledged[topic] = message.offset() + 1
            producer.produce(topic, VALUE, partition=0, on_delivery=delivered)
            producer.flush(30)
            if errors:
                return errors[0]
        return None

    def produce_until_full(self, topic):
        expect(self.produce(topic, 10_000), KafkaError.KAFKA_STORAGE_ERROR, "the error of a full disk")

    def wait_for_room(self, topic):
        end = time.monotonic() + WAIT_S
        while self.produce(topic) is not None:
            if time.monotonic() > end:
                raise Failed(f"nothing is taken although there is room\n{self.broker.log_tail()}")
            time.sleep(0.1)

    def count(self, topic):
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": f"g-{topic}", "log_level": 0,
                             "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        try:
            first, last = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
            consumer.assign([TopicPartition(topic, 0, first)])
            found, end = 0, time.monotonic() + WAIT_S
            while found < last - first and time.monotonic() < end:
                found += sum(m.error() is None for m in consumer.consume(500, 0.2))
            expect(found, last - first, f"the records of {topic}")
            expect(last, self.acknowledged[topic], f"the end of {topic}")
            consumer.commit(offsets=[TopicPartition(topic, 0, last)], asynchronous=False)
            return found
        finally:
            consumer.close()


def lines(broker, text):
    return broker.log.read_text(errors="replace").count(text)


def refused_before_the_reserve(broker, mount, client):
    client.create("kept", "bulk")
    expect(client.produce("kept", 3), None, "an error")
    client.produce_until_full("bulk")
    if not RESERVE - (2 << 20) < mount.free() < 2 * RESERVE:
        raise Failed(f"{mount.free()} bytes are free, where {RESERVE} are to be")
    for _ in range(20):
        expect(client.produce("kept"), KafkaError.KAFKA_STORAGE_ERROR, "the error of a full disk")
    expect(lines(broker, "No room in log directory"), 1, "the lines in the log")


def everything_else_goes_on(broker, mount, client):
    if client.count("kept") < 3 or client.count("bulk") < 100:
        raise Failed("records are missing")
    client.create("new")
    expect("new" in client.admin.list_topics(timeout=30).topics, True, "the new topic")
    entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "bulk", incremental_configs=[entry])
    for future in client.admin.incremental_alter_configs([resource]).values():
        future.result(30)
    client.delete("new")


def deleted_records_make_room(broker, mount, client):
    for future in client.admin.delete_records([TopicPartition("bulk", 0, client.acknowledged["bulk"] - 1)]).values():
        future.result(30)
    client.wait_for_room("kept")
    expect(lines(broker, "There is room in log directory"), 1, "the lines in the log")
    expect(lines(broker, "No room in log directory"), 1, "the lines in the log")


def a_restart_while_it_is_full(broker, mount, client):
    client.produce_until_full("bulk")
    broker.stop()
    broker.start()
    expect(client.produce("kept"), KafkaError.KAFKA_STORAGE_ERROR, "the error of a full disk")
    client.count("kept")
    client.count("bulk")


def no_free_byte(broker, mount, client):
    mount.fill()
    expect(client.produce("kept"), KafkaError.KAFKA_STORAGE_ERROR, "the error of a full disk")
    broker.stop()
    mount.fill()
    broker.start()
    broker.kill()
    mount.fill()
    broker.start()
    print(f"        started in {broker.started_in_s:.2f} s with {mount.free()} bytes free", flush=True)
    client.delete("bulk")
    del client.acknowledged["bulk"]
    client.wait_for_room("kept")
    client.count("kept")


def stops_and_starts_again(broker, mount, client):
    mount.clear()
    broker.stop()
    broker.start()
    expect(client.produce("kept"), None, "an error")
    client.count("kept")
    for bad in ("panicked", "is out of service"):
        expect(lines(broker, bad), 0, f"lines with '{bad}'")


def full(options, report):
    for kind in ("tmpfs", "ext4"):
        mount = Mount(options.work / kind, kind, SIZE_MB)
        broker = Broker(options.command, options.work / f"broker-{kind}", {**SETTINGS, "log.dirs": str(mount.path / "data")})
        try:
            broker.start()
            client = Client(broker)
            for check in (refused_before_the_reserve, everything_else_goes_on, deleted_records_make_room,
                          a_restart_while_it_is_full, no_free_byte, stops_and_starts_again):
                report.check(f"full: {kind}: {check.__name__}", check, broker, mount, client)
                broker.check()
            broker.stop()
        finally:
            broker.close(keep=True)
            mount.close()


def needed():
    """What it takes to mount small file systems."""
    if os.geteuid() != 0:
        raise Missing("only root can mount the small file systems that this part fills: run it, or all of `make test`, as root")
    apt_install("e2fsprogs", "mkfs.ext4")


if __name__ == "__main__":
    try:
        needed()
    except Missing as missing:
        print(f"FAILED  full: a small file system -- {missing}", flush=True)
        sys.exit(1)
    main(__doc__, full)
