"""Fetches and builds what the checks need, once, into the cache; says plainly what is missing where it cannot.

Downloads go to ${XDG_CACHE_HOME:-~/.cache}/floodmark; each piece is keyed by a digest of what it is made from, so that a
changed version makes a new one and an interrupted download is never taken for a finished one.
"""
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PROJECT = HERE.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "floodmark"
KAFKA_VERSION = "4.4.0"


class Missing(Exception):
    """A tool that is needed, is not there, and could not be installed."""


def say(text):
    print(f"compat-tests: {text}", flush=True)


def run(command, what, limit_min=15, **options):
    """Runs one step of the set-up; a failure names the step and shows the end of what it printed."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60 * limit_min, **options)
    except FileNotFoundError:
        raise Missing(f"{command[0]} is missing: it is needed to {what}") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} did not end within {limit_min} minutes: it was to {what}") from None
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-3000:]
        raise Missing(f"{command[0]} could not {what} (exit {done.returncode}):\n{tail}")


def digest(*parts):
    total = hashlib.sha256()
    for part in parts:
        total.update(part.read_bytes() if isinstance(part, Path) else str(part).encode())
    return total.hexdigest()[:12]


def make_once(path, build):
    """`path`, made by `build(temporary)` and moved into place whole; a second caller finds it finished."""
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        build(temporary)
        try:
            os.replace(temporary, path)
        except OSError:
            if not path.exists():
                raise
            shutil.rmtree(temporary, ignore_errors=True)
    return path


def need(program, what):
    if not shutil.which(program):
        raise Missing(f"{program} is missing: it is needed to {what}")


def apt_install(package, program):
    """Installs Debian's `package` where we may; otherwise says what to install."""
    if shutil.which(program):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(f"{program} is missing: install the package {package} (only root can do it here)")
    apt_get(package)
    if not shutil.which(program):
        raise Missing(f"{program} is missing though the package {package} was installed")


def apt_get(package):
    say(f"installing {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    try:
        run(install, f"install {package}", env=environment)
    except Missing:
        run(["apt-get", "update", "-q"], "read the package lists", env=environment)
        run(install, f"install {package}", env=environment)


def apt_header(package, header):
    """As apt_install, for what is there to be compiled with."""
    if Path("/usr/include", header).exists() or Path("/usr/local/include", header).exists():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(f"{header} is missing: install the package {package} (only root can do it here)")
    apt_get(package)


def kcat():
    apt_install("kcat", "kcat")
    return shutil.which("kcat")


def python():
    """A Python with confluent-kafka."""
    requirements = HERE / "requirements.txt"

    def build(path):
        say("fetching confluent-kafka")
        try:
            run([sys.executable, "-m", "venv", path], "make a virtual environment (Debian: package python3-venv)")
        except Missing:
            if os.geteuid() != 0 or not shutil.which("apt-get"):
                raise
            shutil.rmtree(path, ignore_errors=True)
            run(["apt-get", "install", "-y", "-q", "python3-venv"], "install python3-venv")
            run([sys.executable, "-m", "venv", path], "make a virtual environment")
        run([path / "bin/python", "-m", "pip", "install", "-q", "-r", requirements], "install confluent-kafka")

    name = f"venv-{digest(requirements, sys.version)}"
    return make_once(CACHE / name, build) / "bin/python"


def kafka_libs():
    """A directory with the jars of Apache Kafka's broker, tools and clients."""
    pom = HERE / "kafka/pom.xml"

    def build(path):
        need("mvn", "fetch Apache Kafka's jars (Debian: package maven)")
        say(f"fetching Apache Kafka {KAFKA_VERSION}'s jars")
        run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
             f"-DoutputDirectory={path}"], "fetch Apache Kafka's jars")
        if not (path / f"kafka-clients-{KAFKA_VERSION}.jar").exists():
            raise Missing(f"mvn fetched no kafka-clients-{KAFKA_VERSION}.jar")

    return make_once(CACHE / f"kafka-{KAFKA_VERSION}-{digest(pom)}", build)


def java_classes():
    """The class path of Kafka's jars and our own Java programs (client driver, Kafka launcher)."""
    libs = kafka_libs()
    sources = sorted((HERE / "clients/java").glob("*.java")) + sorted((HERE / "kafka").glob("*.java"))

    def build(path):
        need("javac", "build the Java client driver (a JDK of version 17 or newer)")
        run(["javac", "-nowarn", "-Xlint:none", "-cp", f"{libs}/*", "-d", path, *sources], "build the Java client driver")

    classes = make_once(CACHE / f"java-{digest(libs.name, *sources)}", build)
    return f"{classes}:{libs}/*"


JAVA_FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off"]


def java(main, heap="256m", log_level="error"):
    """The start of a command line that runs a Java class with Kafka's jars on the class path."""
    return ["java", *JAVA_FLAGS, f"-Xmx{heap}", f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", java_classes(), main]


def franz_go():
    """The franz-go client driver."""
    source = HERE / "clients/franz-go"

    def build(path):
        need("go", "build the franz-go client driver (Go 1.25 or newer)")
        say("building the franz-go client driver")
        run(["go", "build", "-trimpath", "-buildvcs=false", "-o", path, "."], "build the franz-go client driver", cwd=source)

    return make_once(CACHE / f"franz-go-{digest(*sorted(source.glob('*.*')))}", build)


def faulty():
    """The program that has calls of a broker on files fail (lib/faulty.c)."""
    source = HERE / "lib/faulty.c"

    def build(path):
        need("cc", "build the program that has calls on files fail")
        run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source], "build the program that has calls on files fail")

    return make_once(CACHE / f"faulty-{digest(source)}", build)


def kafka_launcher():
    """The command that runs Apache Kafka itself in the foreground, given a server.properties."""
    return java("KafkaNode", heap="400m", log_level="info")
