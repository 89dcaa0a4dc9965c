"""The judge finds each kind of fault, and none where there is none."""
import tempfile
import unittest
from pathlib import Path

from journal import Journal, complaints, processed_before, read, spans


def events(*lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        Journal(path).write(*(line.split() for line in lines))
        return list(read(path))


GOOD = ("assigned 1.0 a 0", "did 1.1 a 0 0 4", "committed 1.2 a 0 3", "did 1.3 a 0 5 6", "revoked 1.4 a 0",
        "assigned 2.0 b 0", "did 2.1 b 0 3 9", "committed 2.2 b 0 10", "left 2.3 b")


class Judge(unittest.TestCase):
    def kinds(self, *lines, ends=None):
        return sorted({kind for kind, _ in complaints(events(*lines), ends or {0: 10})})

    def test_good(self):
        self.assertEqual(self.kinds(*GOOD), [])
        # A member that does not know yet that it has lost a partition goes on with it.
        self.assertEqual(self.kinds(*GOOD, "did 2.4 a 0 7 8", "refused 2.5 a ILLEGAL_GENERATION"), [])
        # What was acknowledged after it was assigned need not have been there when it looked.
        self.assertEqual(self.kinds(*GOOD, "assigned 2.15 c 0", "did 2.4 c 0 3 9"), [])

    def test_lost(self):
        self.assertEqual(self.kinds(*GOOD, ends={0: 11}), ["lost"])
        self.assertEqual(self.kinds(*GOOD, ends={0: 10, 1: 1}), ["lost"])
        self.assertEqual(self.kinds("assigned 1 a 0", "did 2 a 0 0 4", "did 3 a 0 6 9"), ["lost"])

    def test_again(self):
        self.assertEqual(self.kinds(*GOOD, "assigned 3 c 0", "did 4 c 0 9 9"), ["again"])
        # Whoever commits less later does not make it good.
        self.assertEqual(self.kinds(*GOOD, "committed 2.9 a 0 5", "assigned 3 c 0", "did 4 c 0 5 9"), ["again"])
        self.assertEqual(self.kinds(*GOOD, "assigned 3 b 0", "did 4 b 0 0 9"), ["again"])
        # Of another partition it says nothing, nor does one that was taken away before a record came.
        self.assertEqual(self.kinds(*GOOD, "assigned 3 c 1", "did 4 c 1 0 0", ends={0: 10, 1: 1}), [])
        self.assertEqual(self.kinds(*GOOD, "assigned 3 c 0", "revoked 3.5 c 0"), [])

    def test_processed_before(self):
        self.assertEqual(processed_before(events("did 1 a 0 10 10"), {0: 10}), [])
        self.assertEqual(len(processed_before(events("did 1 a 0 9 10"), {0: 10})), 1)

    def test_a_line_without_end(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            path.write_text("did 1 a 0 0 4\ndid 2 a 0 5 1")
            self.assertEqual(len(list(read(path))), 1)

    def test_spans(self):
        self.assertEqual(spans([1, 2, 3, 5, 7, 8]), [(1, 3), (5, 5), (7, 8)])
        self.assertEqual(spans([]), [])
