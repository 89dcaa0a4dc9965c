"""The broker under test: a process with a throw-away data directory, or an address that somebody else serves."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

START_LIMIT_S = 90
STOP_LIMIT_S = 60
READY = re.compile(rb"\[KafkaRaftServer nodeId=\d+\] Kafka Server started")  # what clients' test rigs look for


class BrokerEnded(Exception):
    """The broker ended by itself; carries the end of its log."""

    told = False  # whether a report has it already


_given = set()  # by this process; who got one may not listen yet


def free_ports(count):
    """Ports that nobody listens on now, outside the range that outgoing connections are given theirs from. None is given twice."""
    sockets = []
    try:
        port = 20000 + (os.getpid() * 7 + int(time.monotonic() * 1000)) % 10000
        while len(sockets) < count:
            port = port + 1 if port < 32000 else 20000
            if port in _given:
                continue
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", port))
                sockets.append(candidate)
            except OSError:
                candidate.close()
        ports = [s.getsockname()[1] for s in sockets]
        _given.update(ports)
        return ports
    finally:
        for s in sockets:
            s.close()


class External:
    """A broker that was started by somebody else."""

    data = None

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self.host, self.port = host, int(port)

    def check(self):
        pass

    def stop(self):
        pass


class Broker:
    """One combined node, started with `command FILE`; keeps its address and its data over restarts."""

    def __init__(self, command, work, settings=None):
        self.command = [str(word) for word in command]
        self.work = Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.data = self.work / "data"
        self.log = self.work / "broker.log"
        self.process = None
        self.environment = None
        self.started_in_s = 0.0
        self.host = "127.0.0.1"
        self.port, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **(settings or {}),
        }
        self.config = self.work / "server.properties"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def launch(self):
        """Starts the process and waits for nothing."""
        self.launched, self.log_begin = time.monotonic(), self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.command, str(self.config)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True, env=self.environment)

    def start(self):
        """Starts the process and waits until it says that it is ready."""
        self.launch()
        return self.wait_ready()

    def wait_ready(self):
        begun = self.launched
        pause = 0.005
        while True:
            with self.log.open("rb") as log:
                log.seek(self.log_begin)
                if READY.search(log.read()):
                    break
            self.check()
            if time.monotonic() - begun > START_LIMIT_S:
                self.kill()
                raise BrokerEnded(f"the broker was not ready after {START_LIMIT_S} s\n{self.log_tail()}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
        self.started_in_s = time.monotonic() - begun
        return self

    def check(self):
        """Raises when the broker has ended without being asked to."""
        if self.process is not None and self.process.poll() is not None:
            status = self.process.returncode
            self.process = None
            raise BrokerEnded(f"the broker ended by itself (exit {status})\n{self.log_tail()}")

    def log_tail(self, lines=40):
        if not self.log.exists():
            return "(no log)"
        tail = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(f"    | {line[:300]}" for line in tail)

    def kill(self):
        """kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self):
        """A clean stop; one that takes too long is an error."""
        if self.process is None:
            return
        self.check()
        self.process.send_signal(signal.SIGTERM)
        self.wait_stopped()

    def wait_stopped(self):
        """Waits for a stop that was asked for."""
        if self.process is None:
            return
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerEnded(f"the broker did not stop within {STOP_LIMIT_S} s\n{self.log_tail()}") from None
        self.process = None

    def close(self, keep):
        """Ends the broker whatever it does; the files stay when something failed."""
        self.kill()
        if not keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def memory_kib(self, field="VmRSS"):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        return 0

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
