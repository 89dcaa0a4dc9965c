"""Environments of the clients' programs, made once each: Python, Node, Go, Rust, Java."""
import os
import shutil
import sys

from lib.toolchain import CACHE, HERE, digest, make_once, need, run, say

JAVA, NODE = HERE / "lib/java", HERE / "lib/node"  # what programs in these languages share


def python(folder):
    requirements = folder / "requirements.txt"

    def build(path):
        say(f"fetching {folder.name}")
        run([sys.executable, "-m", "venv", path], "make a virtual environment (Debian: package python3-venv)")
        run([path / "bin/python", "-m", "pip", "install", "-q", "-r", requirements], f"install {folder.name}")

    return make_once(CACHE / f"{folder.name}-{digest(requirements, sys.version)}", build) / "bin/python"


def node(folder, native=()):
    """A folder with the program and its node_modules. `native` names packages whose own steps are needed."""
    files = sorted(path for path in [*folder.iterdir(), *NODE.iterdir()] if path.suffix in (".json", ".js", ".cjs"))

    def build(path):
        need("npm", f"fetch {folder.name} (Node 20 or newer)")
        say(f"fetching {folder.name}")
        path.mkdir()
        for file in files:
            (path / file.name).write_bytes(file.read_bytes())
        run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], f"install {folder.name}", cwd=path)
        for package in native:
            say(f"building {package}")
            run(["npm", "rebuild", package], f"build {package} (a C++ compiler, make, Python)", limit_min=30, cwd=path,
                env=one_at_a_time())

    return make_once(CACHE / f"{folder.name}-{digest(*files)}", build)


def one_at_a_time():
    """The environment in which node-gyp's make takes one step after the other, whatever make has called us. node-rdkafka's make
    file does not say that librdkafka's `configure` writes the config.h that the next step needs: two steps at once find none, or one
    that is being written anew."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS")}
    return {**inherited, "JOBS": "1"}


def go(folder):
    files = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod", ".sum"))

    def build(path):
        need("go", f"build the program for {folder.name} (Go 1.26 or newer)")
        say(f"building the program for {folder.name}")
        run(["go", "build", "-trimpath", "-buildvcs=false", "-o", path, "."], f"build the program for {folder.name}", cwd=folder)

    return make_once(CACHE / f"{folder.name}-{digest(*files)}", build)


def rust(folder):
    files = [folder / "Cargo.toml", folder / "Cargo.lock", folder / "main.rs"]

    def build(path):
        need("cargo", f"build the program for {folder.name}")
        say(f"building the program for {folder.name}")
        target = path.with_name(path.name + ".target")
        run(["cargo", "build", "-q", "--locked", "--manifest-path", folder / "Cargo.toml", "--target-dir", target],
            f"build the program for {folder.name}")
        path.write_bytes((target / "debug" / f"{folder.name}-script").read_bytes())
        path.chmod(0o755)
        shutil.rmtree(target)

    return make_once(CACHE / f"{folder.name}-{digest(*files)}", build)


def jars(folder):
    """A directory with the jars that `pom.xml` in `folder` names, and what they need."""
    pom = folder / "pom.xml"

    def fetch(path):
        need("mvn", f"fetch the jars of {folder.name} (Debian: package maven)")
        say(f"fetching the jars of {folder.name}")
        run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={path}"],
            f"fetch the jars of {folder.name}")

    return make_once(CACHE / f"{folder.name}-jars-{digest(pom)}", fetch)


def java(folder, source, main, heap="256m"):
    """The command of a program that is compiled with the jars of `folder`, and with what programs in Java share."""
    libs, sources = jars(folder), [source, *sorted(JAVA.rglob("*.java"))]

    def build(path):
        need("javac", f"build the program for {folder.name} (a JDK, version 17 or newer)")
        run(["javac", "-nowarn", "-Xlint:none", "-parameters", "-cp", f"{libs}/*", "-d", path, *sources],
            f"build the program for {folder.name}")

    classes = make_once(CACHE / f"{folder.name}-classes-{digest(libs.name, *sources)}", build)
    return jvm(f"{classes}:{libs}/*", main, heap)


def jvm(class_path, main, heap, log_level="error"):
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{heap}", f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
            "-cp", class_path, main]
