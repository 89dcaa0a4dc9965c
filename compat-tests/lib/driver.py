"""Talks to a client driver: a program that carries out operations, one JSON line in, one JSON line out.

A driver answers `{"op": ..., ...}` with `{"ok": result}` or `{"error": "NAME_OF_KAFKA_ERROR", "text": ...}`. Bytes travel as base64.
A driver that does not answer in time is killed, and the scenario that waited for it has failed.
"""
import base64
import json
import queue
import subprocess
import threading

DEFAULT_LIMIT_S = 60


class Refused(Exception):
    """The client reported an error; `name` is Kafka's name for it."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name = name


class Hang(Exception):
    """The client did not answer in time, or its process ended."""


def encode(data):
    return None if data is None else base64.b64encode(data).decode()


def decode(text):
    return None if text is None else base64.b64decode(text)


class Driver:
    def __init__(self, name, command, bootstrap, log):
        self.name = name
        self.log = log
        self.answers = queue.Queue()
        with log.open("ab") as stderr:
            self.process = subprocess.Popen([str(word) for word in command] + [bootstrap], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()
        hello = self.call("hello")
        self.version, self.can, self.features = hello["version"], set(hello["can"]), hello.get("features", {})

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def send(self, op, **arguments):
        line = json.dumps({"op": op, **arguments}).encode() + b"\n"
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except OSError:
            raise Hang(f"{self.name}: the driver ended before {op}; its log is {self.log}") from None

    def receive(self, op, limit_s=DEFAULT_LIMIT_S):
        try:
            line = self.answers.get(timeout=limit_s)
        except queue.Empty:
            self.close()
            raise Hang(f"{self.name}: no answer to {op} within {limit_s} s; its log is {self.log}") from None
        if line is None:
            raise Hang(f"{self.name}: the driver ended during {op}; its log is {self.log}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("text", ""))
        return answer.get("ok")

    def call(self, op, limit_s=DEFAULT_LIMIT_S, **arguments):
        self.send(op, **arguments)
        return self.receive(op, limit_s)

    def log_tail(self, lines=15):
        return "\n".join(f"    | {line[:300]}" for line in self.log.read_text(errors="replace").splitlines()[-lines:])

    def alive(self):
        return self.process.poll() is None

    def close(self):
        if self.alive():
            self.process.kill()
        self.process.wait()
