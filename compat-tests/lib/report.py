"""Counts what passed and failed, and prints the closing line."""
import sys
import time
import traceback

from lib.broker import BrokerEnded


class Report:
    def __init__(self):
        self.passed, self.failures = 0, []

    def check(self, name, work, *arguments):
        """Runs one check. A failure is shown at once and does not end the run; a broker that ended does."""
        begun = time.monotonic()
        try:
            work(*arguments)
        except Exception as failure:
            self.failures.append(name)
            print(f"FAILED  {name} -- {type(failure).__name__}: {failure}", flush=True)
            if type(failure).__name__ not in ("Failed", "Hang", "Refused", "BrokerEnded"):
                traceback.print_exc(file=sys.stdout)
            if isinstance(failure, BrokerEnded):
                failure.told = True
                raise
        else:
            self.passed += 1
            print(f"ok      {name} ({time.monotonic() - begun:.1f} s)", flush=True)

    def fail(self, name, why):
        self.failures.append(name)
        print(f"FAILED  {name} -- {why}", flush=True)

    def close(self):
        for name in self.failures:
            print(f"failed: {name}")
        print(f"{self.passed} passed, {len(self.failures)} failed", flush=True)
        return 1 if self.failures or not self.passed else 0
