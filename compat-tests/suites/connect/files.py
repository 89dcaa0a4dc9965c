"""A file through a topic into another file, by Kafka Connect: files.py BOOTSTRAP PART. See lib/connect.py."""
import sys

from lib.broker import free_ports
from lib.checks import report, same
from lib.connect import Topics, Worker, ask, unique, until, work

BOOTSTRAP, PART = sys.argv[1:]
FOLDER = work()
TEXT = {"key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter", "offset.flush.interval.ms": 500,
        "bootstrap.servers": BOOTSTRAP}


class Files:
    """The file that is read, the topic, and the file that is written."""

    def __init__(self):
        self.topics, self.topic = Topics(BOOTSTRAP), unique("lines")
        self.input, self.output = FOLDER / f"{self.topic}.in", FOLDER / f"{self.topic}.out"
        self.lines = []
        self.source = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(self.input), "topic": self.topic}
        self.sink = {"connector.class": "FileStreamSink", "tasks.max": "1", "file": str(self.output), "topics": self.topic}

    def append(self, count):
        new = [f"line {n}" for n in range(len(self.lines), len(self.lines) + count)]
        with self.input.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.lines += new

    def in_topic(self):
        read = self.topics.read(self.topic, len(self.lines))
        same([value.decode() for _, _, value, _ in read], self.lines, "the topic")

    def written(self):
        return self.output.read_text().splitlines() if self.output.exists() else []

    def in_output(self):
        until(lambda: len(self.written()) >= len(self.lines), "all lines are in the other file")
        same(self.written(), self.lines, "the other file")


def standalone():
    files, (port,) = Files(), free_ports(1)
    settings = {**TEXT, "offset.storage.file.filename": FOLDER / "offsets", "listeners": f"http://127.0.0.1:{port}"}
    worker = Worker(FOLDER, "standalone", "org.apache.kafka.connect.cli.ConnectStandalone", settings,
                    {"name": "from-file", **files.source}, {"name": "to-file", **files.sink})
    files.topics.create(files.topic, 1)
    files.append(100)
    worker.start()
    try:
        def runs():
            until(lambda: worker.check() and running(port, "from-file", "to-file"), "both connectors run")

        def committed():
            until(lambda: files.topics.committed("connect-to-file", files.topic) == {0: len(files.lines)}, "the sink has committed its offset")

        def again():
            worker.stop()
            files.append(50)
            worker.start()
            files.in_output()
            files.in_topic()

        report("both connectors run", runs)
        report("lines reach the topic", files.in_topic)
        report("lines reach the other file", files.in_output)
        report("the sink is a group with offsets", committed)
        report("it goes on after a stop", again)
    finally:
        worker.kill()


def running(port, *names):
    """Whether connectors and all of their tasks run."""
    states = []
    for name in names:
        told = ask(port, f"/connectors/{name}/status")
        if not told or not told["tasks"]:
            return False
        states += [told["connector"]["state"], *(task["state"] for task in told["tasks"])]
    return set(states) == {"RUNNING"}


def distributed():
    """Two workers. Their settings, offsets and states are in compacted topics; what the source writes is in transactions."""
    files, ports, cluster = Files(), free_ports(2), unique("workers")
    copies = min(3, len(BOOTSTRAP.split(",")))
    settings = {**TEXT, "group.id": cluster, "exactly.once.source.support": "enabled", "scheduled.rebalance.max.delay.ms": 1000,
                "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
                **{f"{kind}.storage.topic": f"{cluster}-{kind}" for kind in ("config", "offset", "status")},
                **{f"{kind}.storage.replication.factor": copies for kind in ("config", "offset", "status")},
                "offset.storage.partitions": 5, "status.storage.partitions": 2}
    workers = {f"127.0.0.1:{port}": Worker(FOLDER, f"worker-{port}", "org.apache.kafka.connect.cli.ConnectDistributed",
                                           {**settings, "listeners": f"http://127.0.0.1:{port}"}) for port in ports}
    files.topics.create(files.topic, 1)
    files.append(100)
    for worker in workers.values():
        worker.start()
    try:
        def together():
            for worker in workers.values():
                worker.check()
            until(lambda: all(ask(port, "/connectors") == [] for port in ports), "both workers answer")
            for name, connector in (("from-file", files.source), ("to-file", files.sink)):
                until(lambda: ask(ports[0], f"/connectors/{name}/config", put=connector), f"{name} is taken")
            until(lambda: running(ports[1], "from-file", "to-file"), "both connectors run, as the other worker tells")

        def internal_topics():
            same({f"{cluster}-{kind}" for kind in ("config", "offset", "status")} - files.topics.names(), set(), "missing topics")

        def taken_over():
            at = ask(ports[0], "/connectors/from-file/status")["tasks"][0]["worker_id"]
            workers.pop(at).kill()
            files.append(50)
            (other,) = workers
            until(lambda: set(places(other)) == {other}, "all tasks are with the other worker")
            files.in_topic()
            until(lambda: set(files.written()) == set(files.lines), "all lines are in the other file")

        report("two workers are one group", together)
        report("its topics are there", internal_topics)
        report("lines reach the topic", files.in_topic)
        report("lines reach the other file", files.in_output)
        report("a killed worker's tasks are taken over, and no line is doubled", taken_over)
    finally:
        for worker in workers.values():
            worker.kill()


def places(worker):
    """Where the tasks are."""
    told = [ask(worker.split(":")[1], f"/connectors/{name}/status") for name in ("from-file", "to-file")]
    return [task["worker_id"] if task["state"] == "RUNNING" else task["state"] for one in told if one for task in one["tasks"]]


{"standalone": standalone, "distributed": distributed}[PART]()
