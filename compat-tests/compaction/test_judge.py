"""The judge finds each fault in made-up logs."""
import unittest

import judge

# a is replaced, b is deleted, c is written once.
ACKNOWLEDGED = {0: ("a", "1"), 1: ("b", "1"), 2: ("c", "1"), 3: ("a", "2"), 4: ("b", None)}
WHOLE = [(offset, *record) for offset, record in ACKNOWLEDGED.items()]
COMPACTED = [WHOLE[2], WHOLE[3], WHOLE[4]]
CLEAN = [WHOLE[2], WHOLE[3]]


def kinds(log, of=judge.complaints):
    return sorted({kind for kind, _ in of(ACKNOWLEDGED, log)})


class Judge(unittest.TestCase):
    def test_nothing_is_wrong_before_and_after_compaction(self):
        for log in (WHOLE, COMPACTED, CLEAN, [WHOLE[1], *COMPACTED]):
            self.assertEqual(kinds(log), [])

    def test_lost(self):
        self.assertEqual(kinds([WHOLE[2], WHOLE[4]]), ["lost"])
        self.assertEqual(kinds([WHOLE[0], WHOLE[2], WHOLE[4]]), ["lost"], "an older value is no substitute")
        self.assertEqual(kinds([]), ["lost"])

    def test_risen(self):
        self.assertEqual(kinds([WHOLE[1], *CLEAN]), ["risen"])

    def test_foreign(self):
        self.assertEqual(kinds([WHOLE[2], WHOLE[3], (4, "b", "1")]), ["foreign"])
        self.assertEqual(kinds([(1, "c", "1"), WHOLE[3]]), ["foreign", "lost"], "its offset has changed")
        self.assertEqual(kinds([*CLEAN, (5, "a", "3")]), ["foreign"], "it was aborted")

    def test_out_of_order(self):
        self.assertEqual(kinds([WHOLE[3], WHOLE[2]]), ["out of order"])
        self.assertEqual(kinds([WHOLE[2], WHOLE[2], WHOLE[3]]), ["out of order"])

    def test_read_along(self):
        self.assertEqual(kinds(WHOLE, judge.read_along), [])
        self.assertEqual(kinds([WHOLE[0], *CLEAN], judge.read_along), [], "a tombstone may be missed")
        self.assertEqual(kinds(WHOLE[:3], judge.read_along), ["lost"])
        self.assertEqual(kinds([*WHOLE, WHOLE[4]], judge.read_along), ["out of order"])
        self.assertEqual(kinds([(0, "a", "0"), *WHOLE[1:]], judge.read_along), ["foreign"])

    def test_doubled(self):
        self.assertEqual(judge.doubled(WHOLE, 5), {"a", "b"})
        self.assertEqual(judge.doubled(WHOLE, 4), {"a"})
        self.assertEqual(judge.doubled(CLEAN, 5), set())

    def test_vanished(self):
        self.assertEqual([judge.vanished(ACKNOWLEDGED, log) for log in (WHOLE, COMPACTED, CLEAN)], [0, 0, 1])
