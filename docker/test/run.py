#!/usr/bin/env python3
"""Builds the image and works with it, on a machine that may have no Docker engine running and no image registry.

    docker/test/run.py [--engine SOCKET] [--binary FILE] [CHECK ...]

Needs root, and of Debian's packages docker.io, docker-compose and debootstrap; a Rust toolchain; a JDK and Maven for
Testcontainers, Go and Node for the image with the suites; python3. Starts an engine of
its own unless --engine names one, and ends it. The images on which ours stands are made with debootstrap under the names that
the Dockerfile uses, and kept in the cache. --binary takes a release binary that is there already instead of compiling one
in the container. Ends with a line 'N passed, N failed'.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "compat-tests"))
from lib import environments, wire

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "floodmark" / "docker"
BASE, BUILD, IMAGE = "debian:bookworm-slim", "rust:1.95-bookworm", "floodmark:test"
# Of the image with the suites: the compilers are those of this machine, the packages Debian's.
GO_BUILD, NODE_BUILD, SUITES = "golang:1.26-bookworm", "node:22-bookworm-slim", "floodmark-suites:test"
SUITES_PACKAGES = """ca-certificates default-jdk-headless g++ kcat libssl-dev make maven pkg-config procps python3-dev python3-venv
rapidjson-dev zlib1g-dev""".split()


def run(*command, timeout=120, check=True, quiet=True, **options):
    """Runs a command; its output is shown when it fails."""
    done = subprocess.run([str(word) for word in command], timeout=timeout, text=True,
                          stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout or ''}")
    return done


class Engine:
    """A Docker engine: one that runs, or one of our own in a temporary folder."""

    def __init__(self, given):
        self.process = None
        if given:
            self.host = given
            return
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="floodmark-docker-"))
        self.host = f"unix://{self.folder}/engine.sock"
        self.log = open(self.folder / "engine.log", "w")
        self.process = subprocess.Popen(
            ["dockerd", "--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
             "--pidfile", self.folder / "engine.pid", "-H", self.host], stdout=self.log, stderr=self.log)
        wait_for("the engine", 60, lambda: self.docker("info", check=False).returncode == 0)

    def docker(self, *arguments, **options):
        return run("docker", "-H", self.host, *arguments, **options)

    def compose(self, file, project, *arguments, env=None, **options):
        env = {**os.environ, "DOCKER_HOST": self.host, "IMAGE": IMAGE, **(env or {})}
        return run("docker-compose", "-f", file, "-p", project, *arguments, env=env, **options)

    def close(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(what, seconds, holds):
    """Waits until something holds; says what did not when it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def base_system(name, *packages, toolchain=None):
    """A minimal Debian as a folder, from the cache, with a Rust toolchain under /usr/local if one is given."""
    folder = CACHE / name
    if not (folder / ".done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        include = [f"--include={','.join(packages)}"] if packages else []
        run("debootstrap", "--variant=minbase", *include, "bookworm", folder, timeout=900)
        for part in ("bin", "lib") if toolchain else ():
            shutil.copytree(pathlib.Path(toolchain) / part, folder / "usr" / "local" / part, symlinks=True, dirs_exist_ok=True)
        (folder / ".done").touch()
    return folder


def import_image(engine, name, folder):
    with subprocess.Popen(["tar", "-c", "-C", folder, "."], stdout=subprocess.PIPE) as packed:
        run("docker", "-H", engine.host, "import", "-", name, stdin=packed.stdout, timeout=600)
        if packed.wait() != 0:
            raise RuntimeError("tar failed")


def context(into):
    """What the Dockerfile copies: the tracked files, and the crates, because a container reaches no registry here."""
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, listed.split("\0")):
        target = into / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    config = subprocess.run(["cargo", "vendor", "--locked", into / "vendor"], cwd=ROOT, text=True, check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    (into / ".cargo").mkdir(exist_ok=True)
    (into / ".cargo" / "config.toml").write_text(config.replace(str(into / "vendor"), "vendor"))


def import_rust(engine):
    toolchain = run("rustc", "--print", "sysroot").stdout.strip()
    version = run("rustc", "--version").stdout.split()[1]
    import_image(engine, BUILD, base_system(f"build-{version}", "gcc", "libc6-dev", toolchain=toolchain))


def build(engine, binary):
    """The image, from the project's Dockerfile."""
    import_image(engine, BASE, base_system("base"))
    if binary:
        # The first stage has nothing to do but to have the program.
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "docker").mkdir()
            shutil.copy2(ROOT / "docker" / "server.properties", folder / "docker")
            (folder / "target" / "release").mkdir(parents=True)
            shutil.copy2(binary, folder / "target" / "release" / "floodmark")
            text = (ROOT / "docker" / "Dockerfile").read_text()
            start, end = text.index("RUN CARGO_PROFILE"), text.index("FROM ${BASE_IMAGE}")
            (folder / "Dockerfile").write_text(text[:start] + text[end:])
            engine.docker("build", "--build-arg", f"BUILD_IMAGE={BASE}", "-t", IMAGE, folder, timeout=600)
        return
    import_rust(engine)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        context(folder)
        engine.docker("build", "-f", folder / "docker" / "Dockerfile", "-t", IMAGE, folder, timeout=1800)


def build_suites(engine):
    """The image with other people's suites. What they fetch is not in it, but in a cache that is mounted."""
    base = base_system("suites", *SUITES_PACKAGES)
    go = base / "usr" / "local" / "go"
    if not go.exists():
        shutil.copytree(run("go", "env", "GOROOT").stdout.strip(), go, symlinks=True)
    import_image(engine, GO_BUILD, base)
    import_rust(engine)
    node = CACHE / "node"
    if not node.exists():
        for name in ("bin", "lib"):
            (node / "usr" / "local" / name).mkdir(parents=True)
        shutil.copy2("/usr/bin/node", node / "usr/local/bin/node")
        shutil.copy2("/usr/bin/npm", node / "usr/local/bin/npm", follow_symlinks=False)
        shutil.copytree("/usr/lib/node_modules", node / "usr/local/lib/node_modules", symlinks=True)
    import_image(engine, NODE_BUILD, node)
    engine.docker("build", "--network", "host", "-f", ROOT / "docker" / "suites.Dockerfile", "--build-arg", f"BROKER_IMAGE={IMAGE}",
                  "-t", SUITES, ROOT / "compat-tests", timeout=1800)


# What is checked. Each check gets an engine that has the image, and leaves no containers.

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


@contextlib.contextmanager
def container(engine, *arguments):
    """A container that is gone in the end."""
    name = engine.docker("run", "-d", *arguments).stdout.split()[-1]
    try:
        yield name
    except Exception:
        print(engine.docker("logs", "--tail", "40", name, check=False).stdout)
        raise
    finally:
        engine.docker("rm", "-f", "-v", name, check=False)


@contextlib.contextmanager
def project(engine, file, env=None):
    """The services of a compose file."""
    name = f"fm{os.getpid()}"
    try:
        engine.compose(file, name, "up", "-d", env=env, timeout=300)
        yield name
    except Exception:
        print(engine.compose(file, name, "logs", "--tail", "40", env=env, check=False).stdout)
        raise
    finally:
        engine.compose(file, name, "down", "-v", "-t", "10", env=env, check=False, timeout=300)


def health_of(engine, name):
    state = json.loads(engine.docker("inspect", name).stdout)[0]["State"]
    if not state["Running"]:
        raise RuntimeError(f"{name} has ended with {state['ExitCode']}")
    return state.get("Health", {}).get("Status")


def metadata(port):
    """The brokers that a bootstrap port tells of, as id -> port, by a Metadata request without topics (version 1)."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        body = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
        connection.sendall(struct.pack(">i", len(body)) + body)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    count, at, brokers = struct.unpack_from(">i", answer, 4)[0], 8, {}
    for _ in range(count):
        node, host = struct.unpack_from(">ih", answer, at)
        at += 6 + host
        brokers[node] = struct.unpack_from(">i", answer, at)[0]
        rack = struct.unpack_from(">h", answer, at + 4)[0]
        at += 6 + max(rack, 0)
    return brokers


def brokers_at(port):
    try:
        return metadata(port)
    except (OSError, struct.error, EOFError):
        return {}


@check
def a_container_that_is_told_nothing_serves(engine):
    with container(engine, "-p", "127.0.0.1:9092:9092", IMAGE) as name:
        wait_for("health", 60, lambda: health_of(engine, name) == "healthy")
        assert metadata(9092) == {1: 9092}
        said = engine.docker("exec", name, "floodmark", "health").stdout
        assert "broker 1 of cluster 5L6g3nShT-eMCtK--X86sw is in service" in said, said
        assert engine.docker("exec", name, "id", "-u").stdout.strip() == "1000"


@check
def it_stops_in_order_on_sigterm(engine):
    with container(engine, IMAGE) as name:
        wait_for("health", 60, lambda: health_of(engine, name) == "healthy")
        begun = time.monotonic()
        engine.docker("stop", "-t", "10", name)
        assert time.monotonic() - begun < 8, "it was killed"
        assert json.loads(engine.docker("inspect", name).stdout)[0]["State"]["ExitCode"] == 0
        assert "Stopped" in engine.docker("logs", name).stdout


@check
def a_killed_container_comes_back_with_its_data(engine):
    with container(engine, "-p", "127.0.0.1:9092:9092", IMAGE) as name:
        wait_for("the broker", 60, lambda: brokers_at(9092))
        create_topic(9092, "kept", 3)
        produce(9092, "kept", 2, b"what was acknowledged")
        engine.docker("kill", name)
        engine.docker("start", name)
        wait_for("the broker", 60, lambda: brokers_at(9092))
        assert "kept-0" in engine.docker("exec", name, "ls", "/var/lib/kafka/data").stdout
        assert b"what was acknowledged" in fetch(9092, "kept", 2)


@check
def a_mounted_file_is_the_configuration_and_variables_win(engine):
    with tempfile.TemporaryDirectory() as folder:
        text = (ROOT / "docker" / "server.properties").read_text()
        file = pathlib.Path(folder) / "server.properties"
        file.write_text(text.replace("node.id=1", "node.id=5").replace("=1@", "=5@") + "log.dirs=/var/lib/kafka/data\n")
        os.chmod(folder, 0o755)
        mounted = ("-v", f"{folder}:/mnt/shared/config:ro", "-e", "CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk")
        with container(engine, *mounted, "-e", "KAFKA_NUM_PARTITIONS=7", IMAGE) as name:
            wait_for("health", 60, lambda: health_of(engine, name) == "healthy")
            said = engine.docker("exec", name, "floodmark", "health").stdout
            assert "broker 5 of cluster MkU3OEVBNTcwNTJENDM2Qk" in said, said


@check
def a_wrong_setting_ends_the_container_with_its_name(engine):
    done = engine.docker("run", "--rm", "-e", "KAFKA_NODE_ID=x", IMAGE, check=False)
    assert done.returncode == 1 and "KAFKA_NODE_ID" in done.stdout, done.stdout


@check
def compose_starts_one_broker(engine):
    with project(engine, ROOT / "docker" / "compose.yaml"):
        wait_for("the broker", 60, lambda: brokers_at(9092) == {1: 9092})


@check
def compose_starts_a_cluster(engine):
    file, ports = ROOT / "docker" / "compose.cluster.yaml", {1: 19092, 2: 29092, 3: 39092}
    with project(engine, file) as name:
        for port in ports.values():
            wait_for(f"three brokers at {port}", 90, lambda port=port: brokers_at(port) == ports)
        create_topic(19092, "replicated", 3)
        engine.compose(file, name, "kill", "kafka-2")
        wait_for("two brokers", 60, lambda: set(brokers_at(19092)) == {1, 3})
        engine.compose(file, name, "start", "kafka-2")
        wait_for("three brokers again", 60, lambda: brokers_at(39092) == ports)


@check
def version_2_of_compose_takes_the_same_files(_):
    files = [*(ROOT / "docker").glob("compose*.yaml"), *(HERE / "kafka-image").glob("*.yaml")]
    said = run("go", "run", ".", *files, cwd=HERE / "compose2", timeout=600).stdout
    assert len(files) == 6 and all(str(file) in said for file in files), said


@check
def compose_files_for_kafkas_image_work_with_ours(engine):
    for file, ports in (("single.yaml", {1: 9092}), ("cluster.yaml", {4: 29092, 5: 39092, 6: 49092})):
        with for_kafkas_image(engine, file):
            for port in ports.values():
                wait_for(f"{file} at {port}", 90, lambda p=port, all=ports: brokers_at(p) == all)


@contextlib.contextmanager
def for_kafkas_image(engine, file):
    """The services of a file that names the image for which it was written; the name alone is changed."""
    text = (HERE / "kafka-image" / file).read_text()
    assert "apache/kafka:" in text
    with tempfile.TemporaryDirectory() as folder:
        changed = pathlib.Path(folder) / file
        changed.write_text(text.replace("apache/kafka:4.0.0", IMAGE))
        with project(engine, changed) as name:
            yield lambda *words, **options: engine.compose(changed, name, *words, **options)


@check
def health_checks_that_call_kafkas_scripts_pass(engine):
    # `up` waits for the health check before it starts what makes the topics.
    with for_kafkas_image(engine, "health.yaml") as compose:
        made = compose("ps", "-q", "init-kafka").stdout.split()[0]
        assert engine.docker("wait", made, timeout=120).stdout.split() == ["0"]
        said = engine.docker("logs", made).stdout
        for line in ("Created topic my-topic-1.", "Created topic my-topic-2."):
            assert line in said, said
        assert said.splitlines()[-2:] == ["my-topic-1", "my-topic-2"], said
        kafka = compose("ps", "-q", "kafka").stdout.split()[0]
        for one, says in {
            "/opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --list": "my-topic-2",
            "/opt/kafka/bin/kafka-topics.sh --bootstrap-server kafka:29092 --describe --topic my-topic-2": "PartitionCount: 3",
            "kafka-topics --bootstrap-server localhost:9092 --list | grep -q my-topic-1": "",
            "/opt/kafka/bin/kafka-broker-api-versions.sh --bootstrap-server localhost:9092 || exit 1": "localhost:9092 (id: 1 ",
            "kafka-broker-api-versions --bootstrap-server=localhost:9092": "Produce(0): ",
            "/opt/kafka/bin/kafka-cluster.sh cluster-id --bootstrap-server localhost:9092": "Cluster ID: 5L6g3nShT-eMCtK--X86sw",
            "nc -z localhost 9092": "",
            "bash -c 'echo > /dev/tcp/localhost/9092'": "",
        }.items():
            said = engine.docker("exec", kafka, "sh", "-c", one).stdout
            assert says in said, f"{one}: {said}"
        for other in ("nc -z localhost 9099", "/opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --list --topic-id x"):
            assert engine.docker("exec", kafka, "sh", "-c", other, check=False).returncode == 1, other


@check
def suites_run_in_a_container_beside_the_cluster(engine):
    # Their set-up reaches registries from here, and not from within.
    run(ROOT / "compat-tests" / "run", "--setup", "franz-go", "kafka-its", timeout=1800)
    build_suites(engine)
    file, name = ROOT / "docker" / "compose.compat.yaml", f"fm{os.getpid()}"
    with tempfile.TemporaryDirectory() as logs:
        env = {"SUITES_IMAGE": SUITES, "CACHE": str(CACHE.parent), "LOGS": logs}
        try:
            # One suite uses the cluster, the other starts its brokers itself.
            said = engine.compose(file, name, "run", "--rm", "-T", "suites", "franz-go", "kafka-its", "--select", "TestPing",
                                  "--select", "CreateTopicsRequestTest#testValidCreateTopicsRequests", env=env, timeout=600).stdout
        finally:
            engine.compose(file, name, "down", "-v", "-t", "10", env=env, check=False, timeout=300)
    assert "\n2 passed, 0 failed" in said and "passed  TestPing" in said, said


@check
def testcontainers_modules_start_it(engine):
    folder = HERE / "testcontainers"
    command = environments.java(folder, folder / "Modules.java", "Modules")
    # No other images can be fetched here, so Testcontainers' own helpers stay out.
    env = {**os.environ, "DOCKER_HOST": engine.host, "TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_CHECKS_DISABLE": "true"}
    said = run(*command, IMAGE, env=env, timeout=300).stdout
    assert said.count("passed ") == 3 and "failed " not in said, said


def create_topic(port, name, partitions):
    """CreateTopics version 4, with the cluster's own number of replicas, answered without an error."""
    text = name.encode()
    topic = struct.pack(">h", len(text)) + text + struct.pack(">ihii", partitions, -1, 0, 0)
    body = struct.pack(">hhihi", 19, 4, 9, -1, 1) + topic + struct.pack(">i?", 20000, False)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    # Correlation id, throttle time, one topic, its name.
    error = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(text))[0]
    if error != 0:
        raise RuntimeError(f"CreateTopics answers with error {error}")


def produce(port, topic, partition, value):
    """One record, acknowledged by all (Produce version 7)."""
    records = wire.batch(wire.record(value))
    error = wire.produce_error(wire.ask(("127.0.0.1", port), 0, 7, wire.produce_body(topic, partition, records)), topic)
    if error != 0:
        raise RuntimeError(f"Produce answers with error {error}")


def fetch(port, topic, partition):
    """What the broker answers that is asked for a partition from its beginning (Fetch version 4): waits for something to be there."""
    wanted = wire.int32(partition) + wire.int64(0) + wire.int32(1 << 20)
    limits = wire.int32(-1) + wire.int32(5000) + wire.int32(1) + wire.int32(1 << 20) + wire.int8(0)
    return wire.ask(("127.0.0.1", port), 1, 4, limits + wire.array([wire.string(topic) + wire.array([wanted])]))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--engine", help="an engine that runs, such as unix:///var/run/docker.sock")
    arguments.add_argument("--binary", type=pathlib.Path, help="a release binary")
    arguments.add_argument("checks", nargs="*", metavar="CHECK")
    given = arguments.parse_args()
    missing = [tool for tool in ("dockerd", "docker", "docker-compose", "debootstrap", "mvn", "javac", "go", "npm") if not shutil.which(tool)]
    if missing:
        sys.exit(f"missing: {', '.join(missing)} (Debian: docker.io, docker-compose, debootstrap, maven, default-jdk; Go, Node)")
    wanted = [one for one in CHECKS if not given.checks or one.__name__ in given.checks]
    engine = Engine(given.engine)
    failed = 0
    try:
        build(engine, given.binary)
        for one in wanted:
            begun = time.monotonic()
            try:
                one(engine)
                print(f"ok    {one.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL  {one.__name__}: {error or type(error).__name__}", flush=True)
    finally:
        engine.close()
    print(f"{len(wanted) - failed} passed, {failed} failed")
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
