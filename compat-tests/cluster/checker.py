"""Finds what a log must never do in the history of a run: the anomalies of Jepsen's Kafka workload, for producers without
transactions and consumers that choose their partitions.

    lost                 an acknowledged record is not in the log in the end
    vanished             a record that a consumer has read is not in the log in the end
    duplicate            one record of an idempotent producer is in the log twice
    inconsistent offset  two different records were seen at one offset
    non-monotonic send   a producer's records have offsets in another order than it sent them in
    non-monotonic poll   a consumer's offsets in a partition went back
    skipped poll         a consumer's offsets in a partition jumped over records that are there
    unseen               a consumer that should have read to the end has not read a record that is there
    hole                 the offsets of the log in the end do not follow each other

The workload has no transactions; aborted reads are for `exactly_once` to find. Knows no clients and no brokers: a history is data.
"""
import collections
import dataclasses


@dataclasses.dataclass
class Send:
    """One record that a producer sent. `value` is unique; without an `offset` nobody knows what became of it."""

    producer: str
    partition: int
    value: str
    offset: int = None


@dataclasses.dataclass
class History:
    sends: list = dataclasses.field(default_factory=list)  # in the order in which each producer sent them
    polls: dict = dataclasses.field(default_factory=dict)  # consumer -> [(partition, offset, value)] in its order
    final: dict = dataclasses.field(default_factory=dict)  # partition -> [(offset, value)], the whole log in the end
    caught_up: set = dataclasses.field(default_factory=set)  # consumers that should have read everything
    plain: set = dataclasses.field(default_factory=set)  # producers who may leave duplicates: not idempotent, or not to the end


def check(history):
    """Every anomaly as (kind, text), the kinds in the order of the list above."""
    return [*lost(history), *vanished(history), *duplicates(history), *inconsistent_offsets(history),
            *sends_out_of_order(history), *polls(history), *unseen(history), *holes(history)]


def lost(history):
    there = {(partition, offset): value for partition, log in history.final.items() for offset, value in log}
    for send in history.sends:
        if send.offset is not None and there.get((send.partition, send.offset)) != send.value:
            found = there.get((send.partition, send.offset))
            yield "lost", (f"{send.value} was acknowledged at offset {send.offset} of partition {send.partition}, where "
                           f"{'nothing' if found is None else found} is in the end")


def vanished(history):
    there = {(partition, offset, value) for partition, log in history.final.items() for offset, value in log}
    for consumer, polled in history.polls.items():
        for partition, offset, value in polled:
            if (partition, offset, value) not in there:
                yield "vanished", f"{consumer} read {value} at offset {offset} of partition {partition}, which is not there in the end"


def duplicates(history):
    plain = {send.value for send in history.sends if send.producer in history.plain}
    places = collections.defaultdict(list)
    for partition, log in history.final.items():
        for offset, value in log:
            places[value].append((partition, offset))
    for value, at in places.items():
        if len(at) > 1 and value not in plain:
            yield "duplicate", f"{value} is at {at}"


def inconsistent_offsets(history):
    seen = collections.defaultdict(set)
    for send in history.sends:
        if send.offset is not None:
            seen[send.partition, send.offset].add(send.value)
    for polled in history.polls.values():
        for partition, offset, value in polled:
            seen[partition, offset].add(value)
    for partition, log in history.final.items():
        for offset, value in log:
            seen[partition, offset].add(value)
    for (partition, offset), values in seen.items():
        if len(values) > 1:
            yield "inconsistent offset", f"at offset {offset} of partition {partition} there were {sorted(values)}"


def sends_out_of_order(history):
    last = {}
    for send in history.sends:
        if send.offset is None:
            continue
        lane = (send.producer, send.partition)
        before = last.get(lane)
        if before is not None and send.offset <= before.offset and send.producer not in history.plain:
            yield "non-monotonic send", (f"{before.value} came to offset {before.offset} of partition {send.partition}, "
                                         f"{send.value} behind it to {send.offset}")
        last[lane] = send


def polls(history):
    offsets = {partition: [offset for offset, _ in log] for partition, log in history.final.items()}
    for consumer, polled in history.polls.items():
        last = {}
        for partition, offset, _ in polled:
            before = last.get(partition, -1)
            if offset <= before:
                yield "non-monotonic poll", f"{consumer} read offset {offset} of partition {partition} after {before}"
            elif offset > before + 1:
                between = [there for there in offsets.get(partition, []) if before < there < offset]
                if between:
                    yield "skipped poll", f"{consumer} read offset {offset} of partition {partition} after {before}; {len(between)} records lie between"
            last[partition] = offset


def unseen(history):
    for consumer in history.caught_up:
        seen = {(partition, offset) for partition, offset, _ in history.polls.get(consumer, [])}
        for partition, log in history.final.items():
            missing = [offset for offset, _ in log if (partition, offset) not in seen]
            if missing:
                yield "unseen", f"{consumer} has not read {len(missing)} records of partition {partition}, the first at offset {missing[0]}"


def holes(history):
    for partition, log in history.final.items():
        for (before, _), (after, _) in zip(log, log[1:]):
            if after != before + 1:
                yield "hole", f"in partition {partition} offset {after} follows {before}"
