"""A cluster of processes behind the proxy: each node is broker and controller, and everybody reaches it through a port that
the proxy has, or, where nothing is to happen to connections, through its own. Faults are done to nodes here; what clients make of them is no matter of this file."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from lib.broker import Broker, BrokerEnded, free_ports

CLUSTER_ID = "Zm8tY2x1c3Rlci10ZXN0cw"
CLIENTS = 0  # how the proxy names them


class Cluster:
    def __init__(self, command, work, count=3, settings=None, proxied=True):
        """`settings` may be a function of the node."""
        self.command, self.work = command, Path(work)
        self.ids = list(range(1, count + 1))
        self.proxy = proxied and subprocess.Popen([sys.executable, Path(__file__).with_name("proxy.py")], stdin=subprocess.PIPE,
                                                  stdout=subprocess.PIPE, text=True)
        ports = free_ports(4 * count)
        self.inner = {node: ports[4 * n:4 * n + 2] for n, node in enumerate(self.ids)}
        self.outer = {node: ports[4 * n + 2:4 * n + 4] for n, node in enumerate(self.ids)} if proxied else self.inner
        voters = ",".join(f"{node}@127.0.0.1:{self.outer[node][1]}" for node in self.ids)
        self.nodes = {node: Broker(command, self.work / f"node-{node}", {
            "node.id": str(node),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(("PLAINTEXT", "CONTROLLER"), self.inner[node])),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(("PLAINTEXT", "CONTROLLER"), self.outer[node])),
            "controller.quorum.voters": voters,
            "default.replication.factor": str(min(3, count)),
            "min.insync.replicas": str(min(2, count)),
            "offsets.topic.replication.factor": str(min(3, count)),
            "log.segment.bytes": "1048576",
            **(settings(node) if callable(settings) else settings or {}),
        }) for node in self.ids}
        self.bootstrap = ",".join(f"127.0.0.1:{self.outer[node][0]}" for node in self.ids)

    # Life

    def start(self):
        environment = {**os.environ, "CLUSTER_ID": CLUSTER_ID}
        self._tell(op="nodes", nodes=self.ids)
        for broker in self.nodes.values():
            broker.environment = environment
            if self.command[-1] == "--config":
                format_ = [*self.command[:-1], "storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(broker.config)]
                done = subprocess.run([str(word) for word in format_], capture_output=True, text=True)
                if done.returncode != 0:
                    raise BrokerEnded(f"storage format failed: {done.stdout}{done.stderr}")
        for node in self.ids:
            self.launch(node)
        for broker in self.nodes.values():
            broker.wait_ready()
        return self

    def launch(self, node):
        broker = self.nodes[node]
        broker.launch()
        self._tell(op="node", node=node, pid=broker.process.pid,
                   ports=dict(zip(map(str, self.outer[node]), self.inner[node])))

    def check(self):
        for node in self.ids:
            self.nodes[node].check()

    def stop(self):
        """All at once: the last ones of a quorum cannot do much alone."""
        for broker in self.nodes.values():
            if broker.process:
                broker.process.send_signal(signal.SIGTERM)
        for broker in self.nodes.values():
            broker.wait_stopped()

    def close(self, keep):
        for broker in self.nodes.values():
            broker.close(keep)
        if self.proxy:
            self.proxy.kill()
            self.proxy.wait()

    # Faults

    def kill(self, node):
        self.nodes[node].kill()
        self._tell(op="down", node=node)

    def end(self, node):
        self.nodes[node].stop()
        self._tell(op="down", node=node)

    def restart(self, node):
        self.launch(node)
        self.nodes[node].wait_ready()
        return self.nodes[node].started_in_s

    def pause(self, node):
        self.nodes[node].process.send_signal(signal.SIGSTOP)

    def resume(self, node):
        self.nodes[node].process.send_signal(signal.SIGCONT)

    def cut(self, sources, targets):
        self._tell(op="cut", **{"from": list(sources), "to": list(targets)})

    def isolate(self, node, clients=True):
        """Nobody reaches the node, and it reaches nobody; without `clients` they still reach it."""
        others = [other for other in self.ids if other != node]
        self.cut([*others, *([CLIENTS] if clients else [])], [node])
        self.cut([node], others)

    def heal(self):
        self._tell(op="heal")

    def reset(self, node):
        self._tell(op="reset", node=node)

    def _tell(self, **command):
        if not self.proxy:
            return
        try:
            self.proxy.stdin.write(json.dumps(command) + "\n")
            self.proxy.stdin.flush()
            answer = self.proxy.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise RuntimeError(f"the proxy ended (exit {self.proxy.poll()}) before {command['op']}")
