"""The common script (lib/script.py) through rskafka, a small client in Rust: it has neither groups nor transactions, and no
settings. Its own tests cannot be built from the crate: rsasl, which they need, did not compile."""
from lib import environments, script
from lib.toolchain import HERE

SOURCE = HERE / "suites/rskafka"
CLIENT, VERSION = "rskafka (Rust)", "0.6.0"
LIMIT_S = 600


def setup():
    environments.rust(SOURCE)


def run(context):
    yield from script.run(context, [environments.rust(SOURCE)], parts=["admin", "produce", "consume", "errors"])
