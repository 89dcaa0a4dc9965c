"""The scenarios of transactions, beside those of scenarios.py. What a client lacks of a transactional producer (kcat, Kafka's tools)
is done by the helper, so that every client reads what transactions have left.

A transaction that has written to a partition ends there with a marker, which takes an offset of its own: hence the numbers.
"""
import time

from lib.driver import decode
from lib.scenarios import Failed, expect, needs, record, refused, scenario

COMMITTED, UNCOMMITTED = {"isolation.level": "read_committed"}, {"isolation.level": "read_uncommitted"}
# What clients make of an epoch that has passed.
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED"}
TIME_OUT_LIMIT_S = 40


class Transactional:
    """A transactional producer in a client's driver, which knows it by `handle`."""

    def __init__(self, driver, id_, handle="producer", timeout_ms=60_000):
        self.driver, self.handle = driver, handle
        driver.call("txn_open", handle=handle, id=id_, timeout_ms=timeout_ms)

    def begin(self):
        self.driver.call("txn_begin", handle=self.handle)

    def send(self, topic, values):
        """They are acknowledged when this returns."""
        self.driver.call("txn_send", handle=self.handle, topic=topic, values=values)

    def end(self, commit):
        self.driver.call("txn_end", handle=self.handle, commit=commit)

    def whole(self, topic, values, commit=True):
        self.begin()
        self.send(topic, values)
        self.end(commit)

    def close(self):
        self.driver.call("txn_close", handle=self.handle)


def what_is_there(subject, topic, count, isolation=COMMITTED, offset=0):
    got = subject.read(topic, 0, count, offset=offset, settings=isolation)
    return [(r["offset"], decode(r["value"]).decode()) for r in got]


def last_stable(subject, topic):
    reader = subject.driver if "txn_open" in subject.driver.can else subject.helper
    return reader.call("list_offset", topic=topic, partition=0, spec="latest_committed")


def await_stable(subject, topic, offset):
    """Markers are written after the end of a transaction is answered."""
    deadline = time.monotonic() + TIME_OUT_LIMIT_S
    while (seen := last_stable(subject, topic)) != offset:
        if time.monotonic() > deadline:
            raise Failed(f"the last stable offset is {seen} after {TIME_OUT_LIMIT_S} s, not {offset}")
        time.sleep(0.05)


@scenario
@needs("fetch")
def aborted_records_are_not_read(subject):
    topic = subject.topic()
    subject.create(topic)
    producer = Transactional(subject.able("txn_open"), topic)
    everything, committed, at = [], [], 0
    for number in range(7):
        values, commit = [f"{number}/{n}" for n in range(number + 1)], number % 3 != 1
        producer.whole(topic, values, commit)
        written = [(at + n, value) for n, value in enumerate(values)]
        everything += written
        committed += written if commit else []
        at += len(values) + 1
    producer.close()
    expect(what_is_there(subject, topic, len(committed)), committed, "what is read committed")
    expect(what_is_there(subject, topic, len(everything), UNCOMMITTED), everything, "what is read uncommitted")


@scenario
@needs("transact")
def a_run_is_a_transaction(subject):
    """For kcat, which commits at the end of its input."""
    topic = subject.topic()
    subject.create(topic)
    for values in (["a", "b"], ["c"]):
        subject.driver.call("transact", topic=topic, id=topic, values=values)
    expect(what_is_there(subject, topic, 3), [(0, "a"), (1, "b"), (3, "c")], "what is read committed")


@scenario
@needs("txn_open")
def an_open_transaction_holds_readers_back(subject):
    topic = subject.topic()
    subject.create(topic)
    producer = Transactional(subject.driver, topic)
    producer.begin()
    producer.send(topic, ["one", "two"])
    subject.helper.call("produce", topic=topic, records=[record(None, "without a transaction")])
    expect(last_stable(subject, topic), 0, "the last stable offset while the transaction is open")
    all_three = [(0, "one"), (1, "two"), (2, "without a transaction")]
    expect(what_is_there(subject, topic, 3, UNCOMMITTED), all_three, "what is read uncommitted")
    producer.end(commit=True)
    await_stable(subject, topic, 4)
    expect(what_is_there(subject, topic, 3), all_three, "what is read committed")
    producer.close()


@scenario
@needs("txn_open")
def a_zombie_is_fenced(subject):
    topic = subject.topic()
    subject.create(topic)
    zombie = Transactional(subject.driver, topic, "zombie")
    zombie.begin()
    zombie.send(topic, ["of the zombie"])
    successor = Transactional(subject.driver, topic, "successor")
    refused(FENCED, zombie.end, commit=True)
    successor.whole(topic, ["of its successor"])
    zombie.close()
    successor.close()
    expect(what_is_there(subject, topic, 1), [(2, "of its successor")], "what is read committed")


@scenario
@needs("txn_open")
def a_transaction_times_out(subject):
    topic = subject.topic()
    subject.create(topic)
    late = Transactional(subject.driver, topic, "late", timeout_ms=1500)
    late.begin()
    late.send(topic, ["too late"])
    await_stable(subject, topic, 2)
    refused({*FENCED, "INVALID_TXN_STATE"}, late.end, commit=True)  # the latter, as in Kafka, where an epoch ends with each transaction
    late.close()
    again = Transactional(subject.driver, topic, "again")
    again.whole(topic, ["in time"])
    again.close()
    expect(what_is_there(subject, topic, 1), [(2, "in time")], "what is read committed")


@scenario
@needs("transform")
def records_are_transformed_exactly_once(subject):
    """Read, write and commit in transactions, every third of which is aborted and done again."""
    source, target, group = subject.topic("-source"), subject.topic("-target"), subject.topic()
    subject.create(source, partitions=2)
    subject.create(target, partitions=2)
    subject.helper.call("produce", topic=source, records=[record(None, f"{n}", partition=n % 2) for n in range(40)])
    told = subject.driver.call("transform", source=source, target=target, group=group, id=group, count=40, abort_every=3)
    if told["aborted"] == 0:
        raise Failed("no transaction was aborted")
    for partition in (0, 1):
        got = subject.read(target, partition, 20, settings=COMMITTED)
        expect([decode(r["value"]).decode() for r in got], [f"{n}!" for n in range(partition, 40, 2)], f"partition {partition}")
    expect(subject.call("committed", group=group, topic=source), {"0": 20, "1": 20}, "the committed offsets")


@scenario
@needs("list_transactions")
def transactions_are_described_and_aborted(subject):
    topic = subject.topic()
    subject.create(topic)
    producer = Transactional(subject.able("txn_open"), topic)
    producer.begin()
    producer.send(topic, ["one", "two"])
    expect(subject.driver.call("list_transactions").get(topic), "ONGOING", "the state in the list")
    expect(subject.driver.call("describe_transaction", id=topic), {"state": "ONGOING", "partitions": [f"{topic}-0"]}, "the transaction")
    expect(subject.driver.call("describe_producers", topic=topic, partition=0), [0], "where producers' transactions begin")
    if "abort_transaction" in subject.driver.can:
        subject.driver.call("abort_transaction", topic=topic, partition=0, start=0)
        await_stable(subject, topic, 3)
        expect(subject.driver.call("describe_producers", topic=topic, partition=0), [None], "where producers' transactions begin")
    producer.close()
    refused("TRANSACTIONAL_ID_NOT_FOUND", subject.driver.call, "describe_transaction", id="nobody's")
