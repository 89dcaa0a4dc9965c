"""sarama's functional tests, as they run on brokers that are there already, each in a process of its own. They want five brokers
behind toxiproxy, which is fetched for them; what goes through it can be held up and cut off. A few of them have `docker compose`
stop a broker or show its log: `lib/compose.py` does that."""
import json
import subprocess
import time
import urllib.error
import urllib.request

from lib import gotests
from lib.broker import free_ports
from lib.compose import Compose
from lib.outcome import FAILED, Outcome
from lib.toolchain import HERE

SOURCE, PACKAGE, PROXY = HERE / "suites/sarama-functional", "github.com/IBM/sarama", "github.com/Shopify/toxiproxy/v2/cmd/server"
CLIENT, VERSION = "sarama, its functional tests (Go)", "1.61.1"
LIMIT_S = 2700
TEST_LIMIT_S = 300
BROKERS = 5
ADVERTISED = [29091, 29092, 29093, 29094, 29095]
# As in the cluster that the tests bring along, which begins with the server.properties that Kafka ships.
SETTINGS = {"auto.create.topics.enable": "false", "broker.rack": "{id}", "default.replication.factor": "2",
            "group.initial.rebalance.delay.ms": "0", "min.insync.replicas": "1", "offsets.topic.replication.factor": "2",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "transaction.state.log.min.isr": "1", "transaction.state.log.replication.factor": "2"}


def tests():
    return gotests.binary(SOURCE, PACKAGE, "-tags=functional")


def proxy():
    return gotests.program(SOURCE, PROXY, "toxiproxy")


def setup():
    tests()
    proxy()


def run(context):
    upstream = context.bootstrap.split(",")
    if len(upstream) != BROKERS:
        yield Outcome("the suite", FAILED, f"these tests want {BROKERS} brokers, which advertise the ports {ADVERTISED}")
        return
    routes = [{"name": f"kafka{n + 1}", "listen": f"127.0.0.1:{port}", "upstream": upstream[n], "enabled": True}
              for n, port in enumerate(ADVERTISED)]
    config, (port,) = context.work / "toxiproxy.json", free_ports(1)
    config.write_text(json.dumps(routes))
    with (context.work / "toxiproxy.log").open("w") as log:
        process = subprocess.Popen([proxy(), "-port", str(port), "-config", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        await_proxy(address)
        folder = gotests.sources(SOURCE, PACKAGE)
        compose = Compose(getattr(context.servers, "nodes", []), context.work / "docker")
        environment = {"TOXIPROXY_ADDR": address, "KAFKA_VERSION": "4.3.1", **compose.environment()}
        for test in gotests.functions(folder.glob("functional_*_test.go")):
            if not context.select or any(word in test for word in context.select):
                compose.test_begins()
                yield gotests.play_one(context, tests(), test, folder, environment, TEST_LIMIT_S)
        compose.close()
    finally:
        process.kill()
        process.wait()


def await_proxy(address):
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{address}/proxies", timeout=5) as answer:
                if len(json.load(answer)) == BROKERS:
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        if time.monotonic() > end:
            raise TimeoutError("toxiproxy does not answer")
        time.sleep(0.1)
