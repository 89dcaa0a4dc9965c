"""A small benchmark of our own: start time, memory, produce and consume throughput, latency, CPU per GB.

The load comes from confluent-kafka on the same machine, so throughput is that of client and broker together; CPU per GB is the
broker's alone. Acknowledgements are durable, as by default. Run it on a quiet machine; compare only runs of one machine.
"""
import argparse
import json
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lib import wire
from lib.broker import Broker

PARTITIONS = 6
RECORD_BYTES = 1000
QUIET = {"log_level": 0}


def first_answer_s(broker):
    """Starts the broker; from then to the first Metadata answer that names a broker."""
    begun = time.monotonic()
    broker.launch()
    while True:
        try:
            answer = wire.ask((broker.host, broker.port), 3, 1, wire.array([]), limit_s=5)
            if int.from_bytes(answer[4:8], "big") == 1:
                return time.monotonic() - begun
        except (OSError, EOFError):
            pass
        broker.check()
        time.sleep(0.001)


def start_times(command, work, runs):
    fresh, again = [], []
    for number in range(runs):
        broker = Broker(command, work / f"start-{number}")
        fresh.append(first_answer_s(broker))
        broker.stop()
        again.append(first_answer_s(broker))
        broker.close(keep=False)
    return {"start_new_ms": statistics.median(fresh) * 1000, "start_again_ms": statistics.median(again) * 1000}


def create(broker, topic, partitions=PARTITIONS):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)


def throughput(broker, megabytes):
    topic, count = "bulk", megabytes * 1_000_000 // RECORD_BYTES
    create(broker, topic)
    value = random.Random(1).randbytes(RECORD_BYTES)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 131072,
                         "queue.buffering.max.messages": 100_000, **QUIET})
    begun, cpu = time.monotonic(), broker.cpu_s()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    produced_s, produce_cpu = time.monotonic() - begun, broker.cpu_s() - cpu

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False,
                         "queued.min.messages": 1_000_000, **QUIET})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    begun, cpu, got = time.monotonic(), broker.cpu_s(), 0
    while got < count:
        got += sum(1 for m in consumer.consume(10_000, 1.0) if m.error() is None)
        if time.monotonic() - begun > 120:
            sys.exit(f"bench: only {got} of {count} records were read")
    consumed_s, consume_cpu = time.monotonic() - begun, broker.cpu_s() - cpu
    consumer.close()
    gigabytes = megabytes / 1000
    return {"produce_mb_s": megabytes / produced_s, "produce_cpu_s_per_gb": produce_cpu / gigabytes,
            "consume_mb_s": megabytes / consumed_s, "consume_cpu_s_per_gb": consume_cpu / gigabytes}


def latency(broker, per_second, seconds):
    """Open loop: each record is due at a fixed time, and its latency counts from then."""
    topic = f"latency-{per_second}"
    create(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    value, samples = b"x" * RECORD_BYTES, []

    def delivered(due):
        def report(error, _):
            assert error is None, error
            samples.append(time.monotonic() - due)
        return report

    begun = time.monotonic() + 0.1
    warm = per_second  # the first second does not count
    for number in range(warm + per_second * seconds):
        due = begun + number / per_second
        while (left := due - time.monotonic()) > 0:
            producer.poll(min(left, 0.001))
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered(due))
        producer.poll(0)
    assert producer.flush(60) == 0
    ordered = sorted(samples[warm:])
    return {f"latency_{per_second}_s_{name}_ms": ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", required=True, help="what starts a broker, given its properties file")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10, help="for each latency")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    command, work = shlex.split(options.command), Path(tempfile.mkdtemp(prefix="floodmark-bench-"))
    try:
        figures = start_times(command, work, options.starts)
        broker = Broker(command, work / "load").start()
        try:
            time.sleep(2)
            figures["idle_memory_mib"] = broker.memory_kib() / 1024
            cpu = broker.cpu_s()
            time.sleep(5)
            figures["idle_cpu_percent"] = (broker.cpu_s() - cpu) / 5 * 100
            for per_second in (100, 1000):
                figures |= latency(broker, per_second, options.seconds)
            figures |= throughput(broker, options.megabytes)
            figures["peak_memory_mib"] = broker.memory_kib("VmHWM") / 1024
            broker.stop()
        finally:
            broker.close(keep=False)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for name, figure in figures.items():
        print(f"{name:28} {figure:10.2f}")
    if options.out:
        options.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
