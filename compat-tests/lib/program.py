"""The frame of a part that is a program of its own: its arguments, its broker, its exit status."""
import argparse
import shlex
import shutil
import signal
import sys
import traceback
from pathlib import Path

from lib.broker import BrokerEnded
from lib.report import Report


def main(description, work, **extra):
    """Runs `work(options, report)`; `extra` are further integer options with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--command", required=True, help="what starts a broker, given its properties file")
    parser.add_argument("--work", type=Path, required=True, help="a directory for data and logs")
    for name, default in extra.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args()
    options.command = shlex.split(options.command)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    report = Report()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the broker is ended too
    try:
        work(options, report)
    except BrokerEnded as ended:
        if not ended.told:
            report.fail("broker", ended)
    except Exception as failure:  # else its status would be that of a program that has told what failed
        traceback.print_exc(file=sys.stdout)
        report.fail(options.work.name, f"{type(failure).__name__}: {failure}")
    sys.exit(1 if report.failures or not report.passed else 0)
