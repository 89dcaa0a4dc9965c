"""The tests that a crate from crates.io carries: built from its sources as they are there, and run one by one."""
import json
import os
import shutil
import subprocess

from lib.outcome import FAILED, PASSED, Outcome
from lib.suites import TimeUp
from lib.toolchain import CACHE, Missing, digest, make_once, need, run as step, say

TEST_LIMIT_S = 120


def source(folder, crate):
    """Where cargo has put the sources of `crate`, which the Cargo.toml in `folder` names with its version."""
    told = subprocess.run(["cargo", "metadata", "--format-version", "1", "--manifest-path", folder / "Cargo.toml"],
                          capture_output=True, text=True)
    if told.returncode != 0:
        raise Missing(f"cargo could not fetch the sources of {crate}:\n{told.stderr[-2000:]}")
    package = next(one for one in json.loads(told.stdout)["packages"] if one["name"] == crate)
    return os.path.dirname(package["manifest_path"])


def binaries(folder, crate):
    """A directory with the integration tests of `crate`, each a program."""

    def build(path):
        for tool in ("cargo", "make", "cc", "c++"):
            need(tool, f"build the tests of {crate}")
        say(f"building the tests of {crate}")
        path.mkdir()
        sources, target = path / "source", path / "target"
        shutil.copytree(source(folder, crate), sources)
        log = path / "built.json"
        step(["sh", "-c", 'exec "$@" >"$0"', log, "cargo", "test", "-q", "--no-run", "--locked", "--test", "*", "--message-format", "json",
              "--manifest-path", sources / "Cargo.toml", "--target-dir", target], f"build the tests of {crate}", limit_min=30)
        for line in log.read_text().splitlines():
            built = json.loads(line)
            if built.get("executable") and built["target"]["kind"] == ["test"]:
                shutil.copy2(built["executable"], path / built["target"]["name"])
        for no_longer_needed in (sources, target):
            shutil.rmtree(no_longer_needed)
        log.unlink()

    return make_once(CACHE / f"{crate}-tests-{digest(folder / 'Cargo.toml')}", build)


def run(context, folder, crate, env):
    seen = set()
    for program in sorted(binaries(folder, crate).iterdir()):
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        for test in sorted(line.removesuffix(": test") for line in listed if line.endswith(": test")):
            name = test if "::" in test else f"{program.name}::{test}"
            if name in seen or context.select and not any(word in name for word in context.select):
                continue
            seen.add(name)  # what is in a file that several programs share is run once
            outcome = play(context, program, test, name, env)
            # Some have limits of their own, which are short on a busy machine.
            yield play(context, program, test, name, env) if outcome.what == FAILED else outcome


def play(context, program, test, name, env):
    reason, last = "", ""
    try:
        for line in context.lines([program, "--exact", test, "--nocapture"], name.replace("::", "-"), env=env, limit_s=TEST_LIMIT_S):
            if "panicked at" in last or line.startswith("Error: "):
                reason = line
            last = line
    except TimeUp as late:
        return Outcome(name, FAILED, str(late))
    if context.status == 0:
        return Outcome(name, PASSED)
    return Outcome(name, FAILED, reason or f"ended with {context.status}")
