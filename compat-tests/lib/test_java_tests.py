"""Tests of java_tests, with class files made here."""
import struct
import tempfile
import unittest
import zipfile
from pathlib import Path

from lib import java_tests

TEST, CLUSTER = "Lorg/Test;", "Lorg/ClusterTest;"


def class_file(name, parent, methods, uses=(), flags=1):
    """A class with methods that have one annotation each, and references to other classes."""
    pool, numbers = [], {}

    def add(key, data, places=1):
        if key not in numbers:
            numbers[key] = len(pool) + 1
            pool.extend([data] + [b""] * (places - 1))
        return numbers[key]

    def text(words):
        return add(words, b"\x01" + struct.pack(">H", len(words)) + words.encode())

    def reference(to):
        return add(("class", to), b"\x07" + struct.pack(">H", text(to.replace(".", "/"))))

    add("a long, which takes two places", b"\x05" + bytes(8), places=2)
    this, above = reference(name), reference(parent)
    for used in uses:
        reference(used)
    attribute = text("RuntimeVisibleAnnotations")
    body = struct.pack(">HH", 0, len(methods))
    for method, annotation in methods.items():
        said = struct.pack(">HHH", 1, text(annotation), 0)
        body += struct.pack(">HHHHHI", 1, text(method), text("()V"), 1, attribute, len(said)) + said
    head = b"\xca\xfe\xba\xbe" + struct.pack(">HHH", 0, 61, len(pool) + 1)
    return head + b"".join(pool) + struct.pack(">HHHH", flags, this, above, 0) + body + struct.pack(">H", 0)


class JavaTests(unittest.TestCase):
    def found(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            jar = Path(folder) / "a.jar"
            with zipfile.ZipFile(jar, "w") as archive:
                for number, data in enumerate(files.values()):
                    archive.writestr(f"p/C{number}.class", data)
            classes = java_tests.read([jar])
        return java_tests.tests(classes, {"p.Kit"}, {"p.Harness"}, {TEST, CLUSTER}, {CLUSTER})

    def test_a_test_with_a_cluster_is_found_and_a_plain_one_is_not(self):
        one = class_file("p.A", "java.lang.Object", {"clustered": CLUSTER, "plain": TEST, "helper": "Lorg/Other;"})
        self.assertEqual(self.found(one=one), ["p.A#clustered"])

    def test_all_tests_of_a_class_that_uses_a_starter_are_found_also_when_a_part_of_it_does(self):
        one = class_file("p.A", "java.lang.Object", {"plain": TEST})
        part = class_file("p.A$1", "java.lang.Object", {}, uses=["p.Kit"])
        self.assertEqual(self.found(one=one, part=part), ["p.A#plain"])

    def test_heirs_have_the_tests_of_their_parents_which_have_none_if_they_are_abstract(self):
        parent = class_file("p.Base", "p.Harness", {"inherited": TEST}, flags=java_tests.ABSTRACT)
        heir = class_file("p.A", "p.Base", {"own": TEST})
        harness = class_file("p.Harness", "java.lang.Object", {}, flags=java_tests.ABSTRACT)
        self.assertEqual(self.found(parent=parent, heir=heir, harness=harness), ["p.A#inherited", "p.A#own"])


if __name__ == "__main__":
    unittest.main()
