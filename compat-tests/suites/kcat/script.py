"""The common script (lib/script.py) through kcat."""
import json
import re
import signal
import subprocess
import sys
import threading
import time
import uuid

from lib.checks import CannotDo, report, same
from lib.connect import Topics

BOOTSTRAP = sys.argv[1]
LIMIT_S = 60
topics = Topics(BOOTSTRAP)


def kcat(*words, data="", refused=False):
    """What it prints, or, if it is to be refused, what it complains of."""
    done = subprocess.run(["kcat", "-b", BOOTSTRAP, *words], input=data.encode(), capture_output=True, timeout=LIMIT_S)
    complaint = done.stderr.decode(errors="replace")
    if (done.returncode != 0) != refused:
        raise AssertionError(f"kcat {' '.join(words)} ended with {done.returncode}: {complaint[-400:]}")
    return complaint if refused else done.stdout.decode()


def topic(partitions=1, **settings):
    name = f"kcat-{uuid.uuid4().hex[:8]}"
    topics.create(name, partitions, **settings)
    end = time.monotonic() + LIMIT_S
    while topics.partitions(name) != partitions and time.monotonic() < end:
        time.sleep(0.1)
    return name


def produce(name, count=100, partition=0, prefix="", *words):
    """What was sent, as (partition, key, value, headers)."""
    sent = [(partition, f"{prefix}k{n}", f"{prefix}v{n}" * 10, ["h", "1"]) for n in range(count)]
    kcat("-P", "-t", name, "-p", str(partition), "-K", "\t", "-H", "h=1", *words, data="".join(f"{k}\t{v}\n" for _, k, v, _ in sent))
    return sent


def parse(lines):
    found = [json.loads(line) for line in lines.splitlines()]
    return [(one["partition"], one["key"], one["payload"], one.get("headers", [])) for one in found]


def read(name, offset, *words, partition=0):
    """All from an offset to the end."""
    return parse(kcat("-C", "-e", "-q", "-J", "-t", name, "-p", str(partition), "-o", str(offset), *words))


def part_produce():
    def codec(name):
        where = topic(3)
        sent = [record for p in range(3) for record in produce(where, 34, p, f"{p}-", "-z", name)]
        same([record for p in range(3) for record in read(where, "beginning", partition=p)], sent, "what was read")

    for name in ("none", "gzip", "snappy", "lz4", "zstd"):
        report(name, codec, name)


def part_consume():
    where = topic()
    sent = produce(where, 50)
    time.sleep(0.05)
    moment = int(time.time() * 1000)
    sent += produce(where, 50, 0, "later-")
    report("from an offset", lambda: same(read(where, 30), sent[30:], "what was read"))
    report("from a time", lambda: same(int(re.search(r"offset (\d+)", kcat("-Q", "-t", f"{where}:0:{moment}"))[1]), 50, "the offset"))
    report("to the end", lambda: same(read(where, 90), sent[90:], "records up to the end"))


def part_errors():
    where = topic(max_message_bytes="1000")

    def complains(text, *words, data=""):
        complaint = kcat(*words, data=data, refused=True)
        same(text.lower() in complaint.lower(), True, f"{text!r} in {complaint[-300:]!r}")

    def cannot():
        raise CannotDo("kcat makes no topics")

    report("topic exists", cannot)
    report("invalid topic", complains, "invalid topic", "-C", "-e", "-t", "no/such", "-p", "0")
    report("unknown topic", complains, "unknown topic or partition", "-C", "-e", "-t", "not-" + where, "-p", "0",
           "-X", "allow.auto.create.topics=false")
    report("out of range", complains, "out of range", "-C", "-e", "-t", where, "-p", "0", "-o", "99", "-X", "auto.offset.reset=error")
    report("too large", lambda: complains("too large", "-P", "-t", where, "-p", "0", data="x" * 5000))


class Member:
    """A kcat in a group, which prints what it reads until it is told to end; then it commits."""

    def __init__(self, group, name):
        self.got, self.assigned = [], 0
        self.process = subprocess.Popen(["kcat", "-b", BOOTSTRAP, "-u", "-J", "-X", "auto.offset.reset=earliest", "-G", group, name],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=self._follow, args=one) for one in ((self.process.stdout, self._record),
                                                                                   (self.process.stderr, self._said))]
        for thread in self.threads:
            thread.start()

    def _follow(self, stream, each):
        for line in stream:
            each(line)

    def _record(self, line):
        self.got += parse(line)

    def _said(self, line):
        found = re.search(r"rebalanced.*: (assigned|revoked): (.*)", line)
        if found:
            self.assigned = found[2].count("[") if found[1] == "assigned" else 0

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT_S)
        for thread in self.threads:
            thread.join()


def until(reached):
    end = time.monotonic() + LIMIT_S
    while not reached() and time.monotonic() < end:
        time.sleep(0.1)


def part_group():
    where, group = topic(4), f"group-{uuid.uuid4().hex[:8]}"

    def two_members():
        sent = [record for partition in range(4) for record in produce(where, 10, partition, f"{partition}-")]
        members = [Member(group, where) for _ in range(2)]
        until(lambda: sum(len(m.got) for m in members) >= 40 and all(m.assigned == 2 for m in members))
        shares = [m.assigned for m in members]
        for m in members:
            m.stop()
        same(shares, [2, 2], "partitions of the members")
        got = [(p, k, v) for m in members for p, k, v, _ in m.got]
        same(sorted(set(got)), sorted(record[:3] for record in sent), "what was read")

    def committed():
        sent = produce(where, 5, 2, "after-")
        m = Member(group, where)
        until(lambda: len(m.got) >= 5)
        m.stop()
        same([record[:3] for record in m.got], [record[:3] for record in sent], "what the next member reads")
        same(topics.committed(group, where), {0: 10, 1: 10, 2: 15, 3: 10}, "committed")

    def list_():
        raise CannotDo("kcat lists no groups")

    report("two members", two_members)
    report("committed", committed)
    report("list", list_)


def part_transaction():
    where = topic()
    transact = lambda *words, data, refused=False: kcat("-P", "-t", where, "-p", "0", "-X", f"transactional.id=t-{where}", *words,
                                                        data=data, refused=refused)
    values = lambda isolation: [value for _, _, value, _ in read(where, "beginning", "-X", f"isolation.level={isolation}")]

    def commit():
        transact(data="one\ntwo\n")
        same(values("read_committed"), ["one", "two"], "what is read")

    def abort():
        # It gives a transaction up when it is told to end in the middle.
        process = subprocess.Popen(["kcat", "-b", BOOTSTRAP, "-P", "-t", where, "-p", "0", "-X", f"transactional.id=t-{where}"],
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.stdin.write(b"never\n" * 50_000)  # it reads much at once
        process.stdin.flush()
        until(lambda: "never" in values("read_uncommitted"))
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.wait(LIMIT_S)
        transact(data="three\n")
        same(values("read_committed"), ["one", "two", "three"], "what is read committed")
        same([*dict.fromkeys(values("read_uncommitted"))], ["one", "two", "never", "three"], "what is read uncommitted, each once")

    def offsets():
        raise CannotDo("kcat commits no offsets in transactions")

    for work in (commit, abort, offsets):
        report(work.__name__, work)


globals()[f"part_{sys.argv[2]}"]()
