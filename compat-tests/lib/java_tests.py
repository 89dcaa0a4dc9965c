"""Which tests the jars of a Java project have, and which of them start brokers: read off the class files, so that a test that nobody
has put on a list is found. No JVM, and no class of the jars, runs for it.
"""
import struct
import zipfile
from dataclasses import dataclass, field

ABSTRACT = 0x0400
UTF8, CLASS = 1, 7
# How long the entries of a constant pool are, by their tags; a text says it itself.
LENGTHS = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
TWO_PLACES = {5, 6}


@dataclass
class ClassFile:
    name: str
    parent: str
    abstract: bool
    classes: set = field(default_factory=set)
    methods: dict = field(default_factory=dict)  # to their annotations


def parse(data):
    pool, at = constant_pool(data)
    flags, this, parent, interfaces = struct.unpack_from(">HHHH", data, at)
    at += 8 + 2 * interfaces
    _, at = members(data, at, pool)  # fields
    methods, at = members(data, at, pool)
    name_of = lambda index: pool[pool[index]].replace("/", ".") if index else ""
    classes = {pool[entry].replace("/", ".") for entry in pool.values() if isinstance(entry, int)}
    return ClassFile(name_of(this), name_of(parent), bool(flags & ABSTRACT), classes, methods)


def short(data, at):
    return data[at] << 8 | data[at + 1]


def constant_pool(data):
    """Texts, and of classes where their name is; and where the pool ends."""
    pool, index, count, at = {}, 1, short(data, 8), 10
    while index < count:
        tag = data[at]
        if tag == UTF8:
            length = short(data, at + 1)
            pool[index] = data[at + 3:at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            if tag == CLASS:
                pool[index] = short(data, at + 1)
            at += 1 + LENGTHS[tag]
        index += 2 if tag in TWO_PLACES else 1
    return pool, at


def members(data, at, pool):
    """Names, with the types of their annotations; and where they end."""
    found, count = {}, short(data, at)
    at += 2
    for _ in range(count):
        name, attributes = pool[short(data, at + 2)], short(data, at + 6)
        annotations = found.setdefault(name, set())
        at += 8
        for _ in range(attributes):
            attribute, (length,) = pool[short(data, at)], struct.unpack_from(">I", data, at + 2)
            at += 6
            if attribute == "RuntimeVisibleAnnotations":
                # Types are references to texts in the form Lpackage/Name; and nothing else here looks like it.
                near = (pool.get(short(data, place)) for place in range(at, at + length - 1))
                annotations.update(text for text in near if isinstance(text, str) and text.startswith("L"))
            at += length
    return found, at


def read(jars):
    found = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and "module-info" not in name and not name.startswith("META-INF"):
                    read_class = parse(archive.read(name))
                    found[read_class.name] = read_class
    return found


def tests(classes, starters, harnesses, annotations, cluster_annotations):
    """`Class#method` of all tests that start brokers: those of heirs of `harnesses`, of classes that use `starters`, and those
    with one of the `cluster_annotations`; tests are what has one of the `annotations`."""
    parts = {}
    for name in classes:
        parts.setdefault(name.partition("$")[0], []).append(name)
    found = set()
    for name, one in classes.items():
        if one.abstract or "$" in name:
            continue
        line = lineage(classes, name)
        of_all = [classes[part] for ancestor in line for part in parts[ancestor.partition("$")[0]]]
        starts = any(ancestor in harnesses for ancestor in line) or any(part.classes & starters for part in of_all)
        for ancestor in line:
            for method, has in classes[ancestor].methods.items():
                if has & cluster_annotations or starts and has & annotations:
                    found.add(f"{name}#{method}")
    return sorted(found)


def lineage(classes, name):
    line = []
    while name in classes:
        line.append(name)
        name = classes[name].parent
    return line
