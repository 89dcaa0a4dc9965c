"""The start test: the binary without a configuration file, as somebody tries it for the first time.

It prints where it listens when the port is left to the system, is ready quickly, stops cleanly on Ctrl-C, keeps its identity and
its data over a restart, and refuses what it cannot work with: a directory that another broker uses, a wrong setting.
"""
import re
import signal
import statistics
import struct
import subprocess
import time

from lib import wire
from lib.broker import READY
from lib.program import main
from lib.scenarios import Failed, expect

START_LIMIT_S = 30


class Node:
    def __init__(self, binary, work, *overrides):
        self.log = work / "node.log"
        options = [word for one in ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={work / 'data'}", *overrides)
                   for word in ("--override", one)]
        begun = time.monotonic()
        self.seen = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([binary, *options], cwd=work, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        while not READY.search(self.printed()):
            if self.process.poll() is not None or time.monotonic() - begun > START_LIMIT_S:
                self.end()
                raise Failed(f"not ready (exit {self.process.returncode}): {self.printed()[-1500:].decode(errors='replace')}")
            time.sleep(0.002)
        self.ready_s = time.monotonic() - begun

    def printed(self):
        with self.log.open("rb") as log:
            log.seek(self.seen)
            return log.read()

    def port(self):
        """The port that was printed; the one of them that answers."""
        for port in dict.fromkeys(re.findall(rb"127\.0\.0\.1:(\d+)", self.printed())):
            try:
                wire.ask(("127.0.0.1", int(port)), wire.API_VERSIONS, 0, limit_s=3)
                return int(port)
            except (OSError, EOFError):
                pass
        raise Failed(f"no address that answers was printed: {self.printed().decode(errors='replace')[-1500:]}")

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        expect(self.process.wait(30), 0, "the exit status after Ctrl-C")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def identity(port):
    """(cluster id, advertised port of the one broker), from a Metadata answer of version 2."""
    answer = wire.ask(("127.0.0.1", port), 3, 2, wire.array([]))
    expect(struct.unpack(">i", answer[4:8])[0], 1, "the number of brokers")
    host_length = struct.unpack(">h", answer[12:14])[0]
    at = 14 + host_length
    advertised = struct.unpack(">i", answer[at:at + 4])[0]
    rack_length = struct.unpack(">h", answer[at + 4:at + 6])[0]
    at += 6 + max(rack_length, 0)
    length = struct.unpack(">h", answer[at:at + 2])[0]
    return answer[at + 2:at + 2 + length].decode(), advertised


def a_free_port_is_printed_and_advertised(binary, work):
    node = Node(binary, work)
    try:
        cluster, advertised = identity(node.port())
        expect((advertised, len(cluster)), (node.port(), 22), "the advertised port, the length of the cluster id")
        node.interrupt()
        if not (work / "data/.kafka_cleanshutdown").exists():
            raise Failed("the stop left no mark of a clean shutdown")
        node = Node(binary, work)
        expect(identity(node.port())[0], cluster, "the cluster id after a restart")
    finally:
        node.end()


def a_directory_in_use_is_refused(binary, work):
    node = Node(binary, work)
    try:
        try:
            Node(binary, work).end()
        except Failed:
            pass
        else:
            raise Failed("two brokers run on one directory")
        identity(node.port())
    finally:
        node.end()


def a_wrong_setting_is_refused(binary, work):
    done = subprocess.run([binary, "--override", f"log.dirs={work / 'data'}", "--override", "num.partitions=many"], cwd=work,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=START_LIMIT_S)
    said = (done.stdout + done.stderr).decode()
    if done.returncode == 0 or "num.partitions" not in said or "many" not in said:
        raise Failed(f"exit {done.returncode}, and it said: {said[-500:]}")


def it_starts_quickly(binary, work):
    times = []
    for _ in range(5):
        node = Node(binary, work)
        times.append(node.ready_s)
        node.end()
    print(f"        ready after {statistics.median(times) * 1000:.0f} ms (median of 5), slowest {max(times) * 1000:.0f} ms", flush=True)
    if statistics.median(times) > 2:
        raise Failed("a start takes more than two seconds, which is far from the 150 ms that are promised")


def start(options, report):
    binary = options.command[0]
    version = subprocess.run([binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    print(f"        {version.stdout.strip()}", flush=True)
    for check in (a_free_port_is_printed_and_advertised, a_directory_in_use_is_refused, a_wrong_setting_is_refused, it_starts_quickly):
        work = options.work / check.__name__
        work.mkdir()
        report.check(f"start: {check.__name__}", check, binary, work)


if __name__ == "__main__":
    main(__doc__, start)
