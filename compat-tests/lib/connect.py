"""Processes of Kafka Connect, which MirrorMaker is too, and the topics around them, for programs of suites. See suites/connect."""
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from lib import environments
from lib.toolchain import HERE

LIMIT_S = 90


def until(reached, what, limit_s=LIMIT_S):
    """Waits until something holds, and gives what it then was."""
    end = time.monotonic() + limit_s
    while not (got := reached()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.1)
    return got


def unique(word):
    return f"{word}-{uuid.uuid4().hex[:8]}"


class Worker:
    """One process, with a log in `folder`; it keeps its settings over restarts."""

    def __init__(self, folder, name, main, settings, *more):
        self.log, self.process = folder / f"{name}.log", None
        files = [self._write(folder / f"{name}.properties", settings)]
        files += [self._write(folder / f"{name}-{n}.properties", one) for n, one in enumerate(more)]
        libs = environments.jars(HERE / "suites/connect")
        self.command = [*environments.jvm(f"{libs}/*", main, "384m", "warn"), *files]

    @staticmethod
    def _write(file, settings):
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def check(self):
        if self.process.poll() is not None:
            tail = self.log.read_text(errors="replace").splitlines()[-5:]
            raise AssertionError(f"{self.log.stem} has ended with {self.process.returncode}: {' | '.join(tail)}")
        return True

    def stop(self):
        """In order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_S)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def ask(port, path, put=None):
    """The answer of a worker's REST interface; None while it has none."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="PUT" if put else "GET",
                                     data=json.dumps(put).encode() if put else None, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


class Topics:
    """The topics of one cluster."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name, partitions, **settings):
        config = {key.replace("_", "."): value for key, value in settings.items()}
        (made,) = self.admin.create_topics([NewTopic(name, partitions, -1, config=config)], operation_timeout=30).values()
        made.result(LIMIT_S)
        return name

    def names(self):
        return set(self.admin.list_topics(timeout=30).topics)

    def partitions(self, name):
        topic = self.admin.list_topics(timeout=30).topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def write(self, name, records):
        """Records are (partition, key, value, headers)."""
        errors = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for partition, key, value, headers in records:
            producer.produce(name, value, key, partition, headers=headers, on_delivery=lambda error, _: error and errors.append(error))
        left = producer.flush(LIMIT_S)
        if left or errors:
            raise AssertionError(f"{left} records were not acknowledged, and {errors[:3]}")

    def read(self, name, count, limit_s=LIMIT_S, settle_s=1.0):
        """All records that are committed: at least so many, and what else comes within a moment."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": unique("reader"), "enable.auto.commit": False,
                    "isolation.level": "read_committed", "allow.auto.create.topics": False}
        got, end = [], time.monotonic() + limit_s
        client = Consumer(settings)
        try:
            client.assign([TopicPartition(name, partition, 0) for partition in range(self.partitions(name))])
            while time.monotonic() < end:
                message = client.poll(0.2)
                if message is not None and not message.error():
                    got.append((message.partition(), message.key(), message.value(), message.headers()))
                    if len(got) == count:
                        end = time.monotonic() + settle_s
        finally:
            client.close()
        return got

    def setting(self, name, key):
        (told,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        return told.result(LIMIT_S)[key].value

    def join(self, group, name, count, limit_s=LIMIT_S):
        """What a member of a group reads until it has so much, or a while has passed; it commits all of it."""
        got, end = [], time.monotonic() + limit_s
        client = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                           "enable.auto.commit": False, "isolation.level": "read_committed"})
        try:
            client.subscribe([name])
            while len(got) < count and time.monotonic() < end:
                message = client.poll(0.2)
                if message is not None and not message.error():
                    got.append((message.partition(), message.key(), message.value(), message.headers()))
            if got:
                client.commit(asynchronous=False)
        finally:
            client.close()
        return got

    def committed(self, group, name):
        """The offsets that a group has committed, by partition."""
        client = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            asked = [TopicPartition(name, partition) for partition in range(self.partitions(name))]
            return {one.partition: one.offset for one in client.committed(asked, timeout=30)}
        finally:
            client.close()


def work():
    """Where a program's files go."""
    return Path(os.environ["SUITE_WORK"])
