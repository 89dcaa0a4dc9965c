"""MirrorMaker 2 between two clusters, exactly once: mirror.py BOOTSTRAP PART, with the other cluster in $OTHER."""
import os
import sys

from lib.broker import free_ports
from lib.checks import report, same
from lib.connect import Topics, Worker, unique, until, work

HERE, THERE = Topics(sys.argv[1]), Topics(os.environ["OTHER"])
COPIES = min(3, len(HERE.bootstrap.split(",")))
ORDERS, GROUP = unique("orders"), unique("clerks")
MIRRORED = f"here.{ORDERS}"
sent = []


def maker():
    flow, (port,) = "here->there", free_ports(1)
    return Worker(work(), "mirror", "org.apache.kafka.connect.mirror.MirrorMaker", {
        "clusters": "here, there", "here.bootstrap.servers": HERE.bootstrap, "there.bootstrap.servers": THERE.bootstrap,
        f"{flow}.enabled": "true", "there->here.enabled": "false", f"{flow}.topics": "orders-.*", f"{flow}.groups": "clerks-.*",
        "tasks.max": 2, "replication.factor": 1, "checkpoints.topic.replication.factor": 1, "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": COPIES,
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
        "there.exactly.once.source.support": "enabled", "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{port}", "scheduled.rebalance.max.delay.ms": 1000,
        "refresh.topics.interval.seconds": 2, "refresh.groups.interval.seconds": 2, "sync.topic.configs.interval.seconds": 2,
        "emit.checkpoints.interval.seconds": 1, "sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": 1,
        "offset.lag.max": 0, "offset.flush.interval.ms": 500,
    })


def send(count):
    new = [(n % 3, f"k{n}".encode(), f"v{n}".encode() * 5, [("h", b"%d" % n)]) for n in range(len(sent), len(sent) + count)]
    HERE.write(ORDERS, new)
    sent.extend(new)


def mirrored():
    until(lambda: MIRRORED in THERE.names(), "the topic is in the other cluster")
    same(THERE.partitions(MIRRORED), 3, "partitions")
    same(sorted(THERE.read(MIRRORED, len(sent))), sorted(sent), "records in the other cluster")


def settings():
    until(lambda: THERE.setting(MIRRORED, "retention.ms") == "7654321", "the topic's setting is in the other cluster")


def group():
    """Offsets are translated on the safe side: a few records may come again, and none may be missing."""
    same(len(HERE.join(GROUP, ORDERS, len(sent))), len(sent), "what the group has read")
    until(lambda: min(THERE.committed(GROUP, MIRRORED).values()) > 0, "the group has offsets in the other cluster")
    before = set(values(sent))
    send(30)
    same(len(THERE.read(MIRRORED, len(sent))), len(sent), "records in the other cluster")
    new = set(values(sent)) - before
    got = values(THERE.join(GROUP, MIRRORED, len(sent), limit_s=20))
    same(new - set(got), set(), "new records that the group has not seen")
    again = len(set(got) & before)
    if again > len(before) / 10:
        raise AssertionError(f"{again} of {len(before)} records came again")


def values(records):
    return [value for _, _, value, _ in records]


def main():
    HERE.create(ORDERS, 3, retention_ms="7654321")
    worker = maker()
    send(300)
    worker.start()

    def restarted(end):
        end()
        send(150)
        worker.start()
        mirrored()

    try:
        report("records are in the other cluster", lambda: (worker.check(), mirrored()))
        report("settings of topics follow", settings)
        report("a group goes on there", group)
        report("it goes on after a stop, and nothing is doubled", restarted, worker.stop)
        report("it goes on after a kill, and nothing is doubled", restarted, worker.kill)
        worker.check()
    finally:
        worker.kill()


main()
