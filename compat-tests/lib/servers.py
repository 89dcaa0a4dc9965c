"""The brokers under a suite: processes of ours, containers, or an address that somebody else serves. All are used alike:
start, check (raises BrokerEnded), stop, close (ends whatever is left, and tells which protocol versions came by)."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

from lib import apis
from lib.broker import Broker, BrokerEnded, free_ports
from lib.toolchain import HERE, PROJECT, Missing, need

CLUSTER_ID = "Zm8tc3VpdGVzLXRlc3RzMQ"


def binary_command(binary):
    if not binary.exists():
        raise Missing(f"{binary} is missing: build it with `cargo build --release`")
    return [binary.resolve(), "--config"]


class Outside:
    def __init__(self, bootstrap):
        self.bootstrap, self.direct = bootstrap, bootstrap.split(",")[0]

    def start(self):
        pass

    def check(self):
        pass

    def stop(self):
        pass

    def close(self):
        return ""


class Processes:
    """So many nodes, each behind a sniffer. `outer` are the sniffer's ports, and what is advertised if nothing else is. `{id}` in a
    setting is the node's."""

    def __init__(self, command, count, work, settings, outer=None, advertised=None, first_id=1):
        self.command = command
        inner, control = free_ports(count), free_ports(count)
        if outer and len(outer) < count:
            raise Missing(f"the suite wants its brokers at {outer}: it cannot have {count}")
        ids = range(first_id, first_id + count)
        host = "localhost" if outer or advertised else "127.0.0.1"  # what suites expect that know the ports
        outer = outer or free_ports(count)
        advertised = advertised or outer
        self.pairs = [f"{out}:{into}" for out, into in zip(outer, inner)]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in outer)
        self.direct = f"127.0.0.1:{inner[0]}"  # for questions of ours, past the sniffer
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(ids, control))
        copies = {name: str(min(3, count)) for name in (
            "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor")}
        self.nodes = [Broker(command, work / f"node-{node}", {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{inner[n]},CONTROLLER://127.0.0.1:{control[n]}",
            "advertised.listeners": f"PLAINTEXT://{host}:{advertised[n]}",
            "controller.quorum.voters": voters,
            "min.insync.replicas": str(min(2, count)),
            "transaction.state.log.min.isr": str(min(2, count)),
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "100",
            **copies, **{name: value.replace("{id}", str(node)) for name, value in settings.items()},
        }) for n, node in enumerate(ids)]
        self.sniffer = None

    def start(self):
        self.sniffer = subprocess.Popen([sys.executable, HERE / "lib/sniffer.py", *self.pairs], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.sniffer.stdout.readline()
        for node in self.nodes:
            node.environment = {**os.environ, "CLUSTER_ID": CLUSTER_ID}
            if self.command[-1] != "--config":
                continue  # Kafka's launcher formats by itself
            format_ = [*self.command[:-1], "storage", "format", "--cluster-id", CLUSTER_ID, "--config", node.config]
            done = subprocess.run([str(word) for word in format_], capture_output=True, text=True)
            if done.returncode != 0:
                raise BrokerEnded(f"storage format failed: {done.stdout}{done.stderr}")
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()

    def check(self):
        for node in self.nodes:
            node.check()

    def stop(self):
        self.check()
        for node in self.nodes:
            if node.process:  # else the suite has stopped it
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait_stopped()

    def close(self):
        for node in self.nodes:
            node.close(keep=True)
        if self.sniffer is None:
            return ""
        told, _ = self.sniffer.communicate("")
        return apis.in_words(tuple(map(int, line.split())) for line in told.splitlines())


def docker_ports(count):
    return [9092] if count == 1 else [19092, 29092, 39092]


class Docker:
    """The compose files under docker/, whose clients come by the ports that they publish. What a suite asks of its brokers comes in a
    file beside them."""

    def __init__(self, image, count, work, settings=None, first_id=1):
        need("docker", "run brokers in containers")
        file = PROJECT / "docker" / ("compose.yaml" if count == 1 else "compose.cluster.yaml")
        v2 = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
        if not v2:
            need("docker-compose", "run brokers in containers")
        asked = work / "compose.settings.json"  # which is YAML too
        asked.write_text(json.dumps(compose_settings(count, settings or {}, first_id)))
        self.compose = [*(["docker", "compose"] if v2 else ["docker-compose"]), "-p", "floodmark-suites", "-f", str(file), "-f", str(asked)]
        self.environment = {**os.environ, "IMAGE": image}
        self.ports = docker_ports(count)
        self.bootstrap = ",".join(f"localhost:{port}" for port in self.ports)
        self.direct = f"localhost:{self.ports[0]}"
        self.log = work / "broker.log"

    def start(self):
        self._run("up", "-d")
        deadline = time.monotonic() + 90
        for port in self.ports:
            while not answers(port):
                if time.monotonic() > deadline:
                    raise BrokerEnded(f"no broker answers at port {port} of the containers\n{self._run('logs', '--tail', '40')}")
                time.sleep(0.2)

    def check(self):
        running = self._run("ps", "-q").split()
        states = subprocess.run(["docker", "inspect", "-f", "{{.State.Running}}", *running], capture_output=True, text=True)
        if states.stdout.split() != ["true"] * len(self.ports):
            raise BrokerEnded(f"a container has ended\n{self._run('logs', '--tail', '40')}")

    def stop(self):
        self._run("stop")

    def close(self):
        try:
            self.log.write_text(self._run("logs", "--no-color"))
        finally:
            self._run("down", "-v")
        return ""

    def _run(self, *words):
        done = subprocess.run([*self.compose, *words], env=self.environment, capture_output=True, text=True, timeout=180)
        if done.returncode != 0:
            raise BrokerEnded(f"compose {words[0]} failed: {done.stderr[-2000:]}")
        return done.stdout


def compose_settings(count, settings, first_id):
    """What stands beside the compose file, so that its brokers have these settings. One broker takes all that it has from the file in
    the image or all from variables: here from variables, if anything is asked."""
    if count == 1:
        if not settings and first_id == 1:
            return {"version": "2.4"}
        lines = (PROJECT / "docker/server.properties").read_text().splitlines()
        base = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        base["node.id"], base["controller.quorum.voters"] = str(first_id), f"{first_id}@localhost:9093"
        nodes = {"kafka": (first_id, {**base, **settings})}
    else:
        nodes = {f"kafka-{n}": (n, settings) for n in range(1, count + 1)}
    return {"version": "2.4", "services": {
        service: {"environment": {variable(name): value.replace("{id}", str(node)) for name, value in own.items()}}
        for service, (node, own) in nodes.items()}}


def variable(setting):
    """The variable in which Kafka's image takes a setting."""
    return "KAFKA_" + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def answers(port):
    """Whether a broker answers ApiVersions there; a published port accepts before anybody listens behind it."""
    try:
        return bool(apis.served("127.0.0.1", port))
    except OSError:
        return False
