"""Kafka's kafka-dump-log, run over the files of partitions: every record decoded, every index held against its log."""
import re
import subprocess

from lib import toolchain
from lib.scenarios import Failed

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
# What it prints about damage.
BAD = re.compile(r"^.*(isvalid: false|Mismatches in|invalid bytes|Index timestamp|out of order|Found timestamp|not found|Exception).*$", re.M)
# It calls the first record of every later segment "-1 is followed by N", which is no gap.
GAP = re.compile(r"^ +(?!-1 )(\d+) is followed by (\d+)$", re.M)


def files(directories):
    return sorted(file for directory in directories for file in directory.iterdir() if file.suffix in SUFFIXES)


def dump(directories, output, gaps=False):
    """The offsets of the records in each directory, in the order in which they are there. `gaps`: compaction may have left some."""
    command = [*toolchain.java("org.apache.kafka.tools.DumpLogSegments", heap="128m"), "--deep-iteration", "--files",
               ",".join(map(str, files(directories)))]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    output.write_text(said)
    if done.returncode != 0:
        raise Failed(f"kafka-dump-log ended with {done.returncode}: {done.stderr[-500:]}")
    bad = BAD.search(said)
    if bad:
        raise Failed(f"kafka-dump-log says: {bad.group(0)[:300]}")
    for gap in GAP.finditer(said):
        if not gaps or int(gap.group(2)) <= int(gap.group(1)):
            raise Failed(f"kafka-dump-log says: {gap.group(0).strip()}")
    offsets = {directory: [] for directory in directories}
    by_name = {str(directory): offsets[directory] for directory in directories}
    for part in re.split(r"^Dumping ", done.stdout, flags=re.M)[1:]:
        by_name[part.split("\n", 1)[0].rsplit("/", 1)[0]] += map(int, re.findall(r"^\| offset: (\d+)", part, re.M))
    return offsets
