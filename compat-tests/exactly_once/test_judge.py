"""The judge finds each kind of fault, and none where there is none."""
import unittest

from judge import copies, counts

SOURCE = {0: ["0 pear plum", "2 pear pear"], 1: ["1 plum fig"]}
COUNTS = {0: [("pear", 1), ("plum", 1), ("pear", 2), ("pear", 3), ("plum", 2)], 1: [("fig", 1)]}


def kinds(complaints):
    return sorted({kind for kind, _ in complaints})


class Copies(unittest.TestCase):
    def of(self, zero, one=("1 plum fig!",)):
        return kinds(copies(SOURCE, {0: list(zero), 1: list(one)}, "!"))

    def test_exact(self):
        self.assertEqual(self.of(["0 pear plum!", "2 pear pear!"]), [])

    def test_lost(self):
        self.assertEqual(self.of(["0 pear plum!"]), ["lost"])
        self.assertEqual(kinds(copies(SOURCE, {}, "!")), ["lost"])

    def test_doubled(self):
        self.assertEqual(self.of(["0 pear plum!", "0 pear plum!", "2 pear pear!"]), ["doubled"])

    def test_strange(self):
        self.assertEqual(self.of(["0 pear plum!", "2 pear pear!", "0 pear plum"]), ["strange"])
        self.assertEqual(self.of(["0 pear plum!", "2 pear pear!", "1 plum fig!"]), ["strange"])

    def test_disordered(self):
        self.assertEqual(self.of(["2 pear pear!", "0 pear plum!"]), ["disordered"])


class Counts(unittest.TestCase):
    def of(self, **changed):
        told = {"pear": [1, 2, 3], "plum": [1, 2], "fig": [1], **changed}
        return kinds(counts(SOURCE, {0: [(word, count) for word, all_ in told.items() for count in all_]}))

    def test_exact(self):
        self.assertEqual(kinds(counts(SOURCE, COUNTS)), [])
        self.assertEqual(self.of(), [])

    def test_faults(self):
        self.assertEqual(self.of(pear=[1, 2]), ["lost"])
        self.assertEqual(self.of(pear=[1, 2, 2, 3]), ["doubled"])
        self.assertEqual(self.of(pear=[1, 2, 3, 4]), ["strange"])
        self.assertEqual(self.of(pear=[2, 1, 3]), ["disordered"])
        self.assertEqual(self.of(kiwi=[1]), ["strange"])
        self.assertEqual(self.of(fig=[]), ["lost"])
