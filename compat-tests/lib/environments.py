"""Environments of the clients' programs, made once each: Python, Node, Go, Rust, Java."""
import sys

from lib.toolchain import CACHE, digest, make_once, need, run, say


def python(folder):
    requirements = folder / "requirements.txt"

    def build(path):
        say(f"fetching {folder.name}")
        run([sys.executable, "-m", "venv", path], "make a virtual environment (Debian: package python3-venv)")
        run([path / "bin/python", "-m", "pip", "install", "-q", "-r", requirements], f"install {folder.name}")

    return make_once(CACHE / f"{folder.name}-{digest(requirements, sys.version)}", build) / "bin/python"


def node(folder):
    """A folder with the program and its node_modules."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".js"))

    def build(path):
        need("npm", f"fetch {folder.name} (Node 20 or newer)")
        say(f"fetching {folder.name}")
        path.mkdir()
        for file in files:
            (path / file.name).write_bytes(file.read_bytes())
        run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], f"install {folder.name}", cwd=path)

    return make_once(CACHE / f"{folder.name}-{digest(*files)}", build)


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

    return make_once(CACHE / f"{folder.name}-{digest(*files)}", build)


def java(folder, source, main):
    """The class path of a program that is compiled with the jars that `pom.xml` in `folder` names."""
    pom = folder / "pom.xml"

    def fetch(path):
        need("mvn", f"fetch the jars of {folder.name} (Debian: package maven)")
        say(f"fetching the jars of {folder.name}")
        run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={path}"],
            f"fetch the jars of {folder.name}")

    jars = make_once(CACHE / f"{folder.name}-jars-{digest(pom)}", fetch)

    def build(path):
        need("javac", f"build the program for {folder.name} (a JDK, version 17 or newer)")
        run(["javac", "-nowarn", "-Xlint:none", "-cp", f"{jars}/*", "-d", path, source], f"build the program for {folder.name}")

    classes = make_once(CACHE / f"{folder.name}-classes-{digest(jars.name, source)}", build)
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp", f"{classes}:{jars}/*", main]
