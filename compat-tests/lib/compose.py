"""Does what tests ask `docker compose` for that believe to have started the brokers with it: stop one, start it, show its log.
`stand-in/docker`, which is found in the place of docker, passes their words on. The brokers are called kafka-1, kafka-2 and so on."""
import json
import os
import socketserver
import threading
from pathlib import Path

STAND_IN = Path(__file__).resolve().parent / "stand-in"


class Compose:
    def __init__(self, nodes, socket):
        self.nodes = {f"kafka-{n + 1}": node for n, node in enumerate(nodes)}
        self.log_begins = {}
        self.socket = socket

        class Handler(socketserver.StreamRequestHandler):
            def handle(handler):
                answer = self.answer(json.loads(handler.rfile.readline()))
                handler.wfile.write(json.dumps(answer).encode() + b"\n")

        self.server = socketserver.ThreadingUnixStreamServer(str(socket), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def environment(self):
        return {"FLOODMARK_SUITE_DOCKER": str(self.socket), "PATH": f"{STAND_IN}:{os.environ['PATH']}"}

    def answer(self, words):
        """The exit status, and what is printed."""
        known = len(words) > 2 and words[0] == "compose" and words[-1] in self.nodes
        do = {"stop": self.stop, "start": self.start, "logs": self.log}.get(words[1]) if known else None
        if do is None:
            return 1, f"these brokers are not in containers: there is no `docker {' '.join(words)}`\n"
        try:
            return 0, do(words[-1]) or ""
        except Exception as error:  # what befell the broker; the test is to fail with it
            return 1, f"{error}\n"

    def stop(self, name):
        self.nodes[name].stop()

    def start(self, name):
        if self.nodes[name].process is None:
            self.nodes[name].start()

    def log(self, name):
        """What it has logged since the test began; the tests want no more."""
        return self.nodes[name].log.read_bytes()[self.log_begins[name]:].decode(errors="replace")

    def test_begins(self):
        """Every broker runs, also if a test was ended before it had started one again."""
        for name, node in self.nodes.items():
            self.start(name)
            self.log_begins[name] = node.log.stat().st_size

    def close(self):
        self.server.shutdown()
        self.server.server_close()
