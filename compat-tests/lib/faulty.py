"""A broker some of whose calls on files fail, or that is killed just before one of them: the other side of faulty.c, which runs it."""
import errno
import mmap
import struct
import subprocess

from lib import toolchain

READS, WRITES, SYNCS, RENAMES = 1, 2, 4, 8
SIZE, PATTERN_AT = 16 + 1024, 16


class Faulty:
    def __init__(self, program, control):
        self.program, self.path = program, control
        control.write_bytes(bytes(SIZE))
        with control.open("r+b") as file:
            self.control = mmap.mmap(file.fileno(), SIZE)

    def command(self, command):
        """The command that runs `command` so."""
        return [str(self.program), str(self.path), *command]

    def fail(self, calls, pattern, error=errno.EIO):
        """From now on these calls fail for files with `pattern` in their paths."""
        self._arm(calls, pattern, error, 0)

    def kill_at(self, calls, pattern, skip=0):
        """Once that many such calls have gone well, the next one is never made: the broker is killed."""
        self._arm(calls, pattern, 0, skip)

    def _arm(self, calls, pattern, error, skip):
        self.disarm()
        self.control[PATTERN_AT:] = str(pattern).encode().ljust(SIZE - PATTERN_AT, b"\0")
        self.control[1:12] = struct.pack("<BHII", error, 0, skip, 0)
        self.control[0] = calls

    def disarm(self):
        """All goes well again. Returns how many calls did not."""
        self.control[0] = 0
        return self.struck

    @property
    def struck(self):
        return struct.unpack_from("<I", self.control, 8)[0]


def available(work):
    """The program, and why there is none where it is not possible here."""
    try:
        program = toolchain.faulty()
    except toolchain.Missing as missing:
        return None, str(missing)
    probe = Faulty(program, work / "probe")
    done = subprocess.run(probe.command(["true"]), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (program, None) if done.returncode == 0 else (None, done.stderr.strip())
