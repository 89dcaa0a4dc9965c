"""What members of a group have done, as lines in a file, and the judge of it. A line is an event; times are of the machine's
monotonic clock, which all processes share:

    assigned TIME MEMBER PARTITION             told before the member looks up where to begin
    did TIME MEMBER PARTITION FIRST LAST       the records from FIRST to LAST are processed
    committed TIME MEMBER PARTITION OFFSET     the coordinator has acknowledged it; OFFSET is the next record's
    revoked TIME MEMBER PARTITION
    left TIME MEMBER                           the member has closed in an orderly way
    refused TIME MEMBER ERROR                  a commit was not taken, or the member cannot go on and starts anew

Knows no clients and no brokers. A process may be killed at any time, so the last line may lack its end.
"""
import collections
import os

Event = collections.namedtuple("Event", "kind time member partition first last", defaults=(None, None, None))


class Journal:
    """Writes events so that they are kept when the process is killed."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *lines):
        if lines:
            os.write(self.file, "".join(f"{' '.join(map(str, line))}\n" for line in lines).encode())


def read(path):
    """The events in a file."""
    for line in path.read_text().split("\n")[:-1]:
        kind, time, member, *rest = line.split(" ")
        yield Event(kind, float(time), member, *(rest if kind == "refused" else map(int, rest)))


def spans(offsets):
    """Offsets in their order as (first, last) of the runs without a gap."""
    runs = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return [tuple(run) for run in runs]


def complaints(events, ends):
    """Every complaint as (kind, text):

    lost    a record before the end of its partition was processed by nobody
    again   a member began before what had been committed, and acknowledged, when the partition was assigned to it
    """
    events = sorted(events, key=lambda event: event.time)
    yield from lost(events, ends)
    yield from again(events)


def lost(events, ends):
    done = {partition: bytearray(end) for partition, end in ends.items()}
    for event in events:
        if event.kind == "did" and event.partition in done:
            for offset in range(event.first, min(event.last + 1, len(done[event.partition]))):
                done[event.partition][offset] = 1
    for partition, seen in sorted(done.items()):
        missing = spans(offset for offset, is_done in enumerate(seen) if not is_done)
        if missing:
            yield "lost", f"partition {partition}, of {len(seen)} records: {missing[:5]}"


def again(events):
    committed = {}  # by partition: the highest offset that was acknowledged, by whom
    begins = {}  # by member and partition: what had been committed when it was assigned, until its first record
    for event in events:
        key = event.member, event.partition
        if event.kind == "committed":
            committed[event.partition] = max(committed.get(event.partition, (-1, "", 0)), (event.first, event.member, event.time))
        elif event.kind == "assigned":
            begins[key] = event.time, committed.get(event.partition)
        elif event.kind == "revoked":
            begins.pop(key, None)
        elif event.kind == "did":
            assigned_at, before = begins.pop(key, (0, None))
            if before and event.first < before[0]:
                yield "again", (f"partition {event.partition}: {event.member}, assigned at {assigned_at:.3f}, began with {event.first}, and "
                                f"{before[1]} had committed {before[0]} by {before[2]:.3f}")


def processed_before(events, ends):
    """Records before these ends that were processed, as text."""
    return [f"partition {event.partition}: {event.member} has processed {event.first}, of {ends[event.partition]}" for event in events
            if event.kind == "did" and event.first < ends[event.partition]]


def account(events):
    """In numbers: who did what how often."""
    count = collections.Counter(event.kind for event in events)
    members = {event.member for event in events if event.kind == "assigned"}
    records = collections.Counter()
    for event in events:
        if event.kind == "did":
            records["all"] += event.last - event.first + 1
    refused = collections.Counter(event.partition for event in events if event.kind == "refused")
    return members, records["all"], count, refused
