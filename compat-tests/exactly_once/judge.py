"""Holds what came out of programs that read, write and commit in transactions against what went in: each record exactly once.

    lost        a record that went in has not come out
    doubled     it has come out more than once
    strange     something has come out that never went in
    disordered  all of it is there, in another order

Knows no clients and no brokers: logs are data. A log is partition -> what is in it, in its order.
"""
import collections


def copies(source, target, mark=""):
    """Every complaint as (kind, text) about a program that copies each partition and puts `mark` behind each value."""
    for partition in sorted(source.keys() | target.keys()):
        yield from differences(f"partition {partition}", [value + mark for value in source.get(partition, [])], target.get(partition, []))


def words(source):
    """How often each word is there. A value is a number that nobody counts, and words."""
    return collections.Counter(word for log in source.values() for value in log for word in value.split()[1:])


def counts(source, target):
    """Of a program that counts words and tells each new count: of each word it must tell 1, 2, 3 and so on."""
    told = collections.defaultdict(list)
    for log in target.values():
        for word, count in log:
            told[word].append(count)
    wanted = words(source)
    for word in sorted(wanted.keys() | told.keys()):
        yield from differences(f"the word {word}", list(range(1, wanted[word] + 1)), told[word])


def differences(where, wanted, got):
    if got == wanted:
        return
    expected, seen = collections.Counter(wanted), collections.Counter(got)
    found = [("lost", [one for one in expected if seen[one] < expected[one]]),
             ("doubled", [one for one in expected if seen[one] > expected[one]]),
             ("strange", [one for one in seen if one not in expected])]
    for kind, which in found:
        if which:
            yield kind, f"{where}: {len(which)} of {len(wanted)}, the first: {which[0]}"
    if not any(which for _, which in found):
        at = next(n for n, (a, b) in enumerate(zip(wanted, got)) if a != b)
        yield "disordered", f"{where}: {got[at]} where {wanted[at]} is due"
