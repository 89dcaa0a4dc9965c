"""The programs under test: they read, write and commit in transactions, and are started again whenever they end."""
import subprocess
import sys
import threading
from pathlib import Path

from lib import environments, toolchain

FOLDER = Path(__file__).resolve().parent
TRANSACTION_LIMIT_MS = 8000
PAUSE_S = 1.0


def word_count():
    return environments.java(FOLDER, FOLDER / "WordCount.java", "WordCount")


def commands(bootstrap, source, work):
    """By name: the target topic, and the command of each process that writes to it."""
    limit = str(TRANSACTION_LIMIT_MS)
    java = toolchain.java("org.apache.kafka.tools.TransactionalMessageCopier", heap="128m")
    java += ["--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0", "--output-topic", "copied-by-java",
             "--consumer-group", "copy-java", "--transactional-id", "copy-java", "--transaction-size", "20", "--transaction-timeout", limit,
             "--enable-random-aborts", "--group-mode", "--use-group-metadata"]
    python = [sys.executable, FOLDER / "copier.py", bootstrap, source, "copied-by-librdkafka", "copy-librdkafka", limit]
    streams = [*word_count(), bootstrap, source, "counted-by-streams", limit]
    return {"java": ("copied-by-java", [java]),
            "librdkafka": ("copied-by-librdkafka", [[*python, f"copy-librdkafka-{n}"] for n in (1, 2)]),
            "streams": ("counted-by-streams", [[*streams, work / f"state-{n}"] for n in (1, 2)])}


class Program:
    """One process. It may end: TransactionalMessageCopier does when it has copied what was there, and all do when they are fenced."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, [str(word) for word in command], log
        self.starts, self.process, self.ended = 0, None, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ended.is_set():
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            self.starts += 1
            if self.ended.is_set():  # told in between
                self.process.kill()
            self.process.wait()
            self.ended.wait(PAUSE_S)

    def kill(self):
        """kill -9; it comes back."""
        if self.process is not None:
            self.process.kill()

    def close(self):
        self.ended.set()
        self.kill()
        self.thread.join()

    def log_tail(self, lines=15):
        return "\n".join(f"    | {line[:300]}" for line in self.log.read_text(errors="replace").splitlines()[-lines:])
