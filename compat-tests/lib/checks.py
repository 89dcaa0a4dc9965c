"""For the programs in Python of the common script: runs the checks of a part and prints their lines (see lib/script.py)."""
import sys
import traceback


class CannotDo(Exception):
    """The client has no such thing."""


def report(name, work, *arguments):
    try:
        work(*arguments)
        print(f"passed {name}", flush=True)
    except CannotDo as cannot:
        print(f"n/a {name} -- {cannot}", flush=True)
    except Exception as failure:
        traceback.print_exc(file=sys.stderr)
        print(f"failed {name} -- {type(failure).__name__}: {failure}".replace("\n", " "), flush=True)


def same(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")
