"""What a compacted log must have, held against what was acknowledged. Knows no clients and no brokers: logs are data.

A log is a list of (offset, key, value) as it was read; what was acknowledged is {offset: (key, value)}. A value of None is a tombstone.

    foreign         at an offset there is what was not acknowledged there: another record, or one at an offset that is not its own
    out of order    offsets do not grow
    lost            a key's last value is not at its offset
    risen           a key's tombstone is gone, and an older value of it is not
"""


def last_of(acknowledged):
    """By key the last offset and what is there."""
    last = {}
    for offset, (key, value) in sorted(acknowledged.items()):
        last[key] = (offset, value)
    return last


def complaints(acknowledged, log):
    before = -1
    for offset, key, value in log:
        if offset <= before:
            yield "out of order", f"offset {offset} follows {before}"
        before = offset
        if acknowledged.get(offset) != (key, value):
            yield "foreign", f"at offset {offset} there is {shown(key, value)}, acknowledged was {shown(*acknowledged.get(offset, (None, None)))}"
    there = {offset for offset, _, _ in log}
    has_any = {key for _, key, _ in log}
    for key, (offset, value) in last_of(acknowledged).items():
        if offset in there:
            continue
        if value is not None:
            yield "lost", f"{shown(key, value)} was acknowledged at offset {offset}, and nothing of the key since"
        elif key in has_any:
            yield "risen", f"{key} was deleted at offset {offset}, and an older value is there"


def read_along(acknowledged, seen):
    """What is wrong with what a consumer has read while the log was written and compacted. It may have missed a tombstone, which is
    not kept for long."""
    before = -1
    for offset, key, value in seen:
        if offset <= before:
            yield "out of order", f"offset {offset} was read after {before}"
        before = offset
        if acknowledged.get(offset) != (key, value):
            yield "foreign", f"at offset {offset} {shown(key, value)} was read, acknowledged was {shown(*acknowledged.get(offset, (None, None)))}"
    offsets = {offset for offset, _, _ in seen}
    for key, (offset, value) in last_of(acknowledged).items():
        if value is not None and offset not in offsets:
            yield "lost", f"{shown(key, value)} at offset {offset} was not read"


def doubled(log, upto):
    """Keys that are below `upto` more than once: not compacted yet."""
    once, twice = set(), set()
    for offset, key, _ in log:
        if offset < upto:
            (twice if key in once else once).add(key)
    return twice


def vanished(acknowledged, log):
    """How many keys are deleted and nowhere any more."""
    has_any = {key for _, key, _ in log}
    return sum(value is None and key not in has_any for key, (_, value) in last_of(acknowledged).items())


def shown(key, value):
    return f"{key} = {value if value is None else value[:24]}"
