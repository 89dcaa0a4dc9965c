"""MirrorMaker 2 from the brokers of the run to another cluster, which is a process of ours (mirror.py)."""
from lib import environments, script, toolchain
from lib.servers import Processes
from lib.toolchain import HERE

SOURCE = HERE / "suites/mirror"
CLIENT, VERSION = "MirrorMaker 2", "4.3.1"
LIMIT_S = 900


def setup():
    environments.jars(HERE / "suites/connect")
    toolchain.python()


def run(context):
    other = Processes(context.command, 1, context.work / "other", {})
    try:
        other.start()
        env = {"PYTHONPATH": str(HERE), "SUITE_WORK": str(context.work), "OTHER": other.bootstrap}
        yield from script.run(context, [toolchain.python(), SOURCE / "mirror.py"], ["mirror"], env, limit_s=600)
        other.stop()
    finally:
        other.close()
