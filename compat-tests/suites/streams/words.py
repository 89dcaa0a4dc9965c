"""A word count by Kafka Streams: words.py BOOTSTRAP streams. Every count that it commits must be there once and in its place."""
import random
import subprocess
import sys

import judge
from programs import TRANSACTION_LIMIT_MS, word_count
from lib.checks import report, same
from lib.connect import Topics, unique, until, work

PARTITIONS = 3
WORDS = "ash bay elm fig fir hop ivy oak pea rye".split()
dice = random.Random(7)


class Count:
    def __init__(self, bootstrap):
        self.bootstrap, self.topics = bootstrap, Topics(bootstrap)
        self.source, self.target = unique("lines"), unique("counts")
        for name in (self.source, self.target):
            self.topics.create(name, PARTITIONS)
        self.lines, self.instances = {n: [] for n in range(PARTITIONS)}, []

    def write(self, count):
        new = []
        for number in range(count):
            partition, line = number % PARTITIONS, f"{number} {' '.join(dice.choices(WORDS, k=dice.randint(1, 3)))}"
            self.lines[partition].append(line)
            new.append((partition, None, line.encode(), []))
        self.topics.write(self.source, new)

    def start(self):
        number = len(self.instances)
        command = [*word_count(), self.bootstrap, self.source, self.target, TRANSACTION_LIMIT_MS, work() / f"state-{number}"]
        with (work() / f"instance-{number}.log").open("wb") as log:
            self.instances.append(subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self.instances[-1]

    def counted(self):
        """All is counted, and nothing twice."""
        wanted, told = sum(judge.words(self.lines).values()), {}

        def all_of_it():
            told.clear()
            for partition, key, value, _ in self.topics.read(self.target, wanted, limit_s=20):
                told.setdefault(partition, []).append((key.decode(), int(value)))
            return sum(map(len, told.values())) >= wanted
        until(all_of_it, f"{wanted} counts are committed", limit_s=120)
        same([": ".join(complaint) for complaint in judge.counts(self.lines, told)], [], "what is wrong with the counts")

    def close(self):
        for instance in self.instances:
            instance.kill()
            instance.wait()


def main():
    count = Count(sys.argv[1])

    def one_instance():
        count.write(600)
        count.start()
        count.counted()

    def two_instances():
        count.start()
        count.write(600)
        count.counted()

    def one_is_killed():
        count.write(600)
        count.instances[0].kill()
        count.write(600)
        count.counted()

    def another_comes():
        count.start()
        count.write(600)
        count.counted()

    try:
        for check in (one_instance, two_instances, one_is_killed, another_comes):
            report(check.__name__.replace("_", " "), check)
    finally:
        count.close()


main()
