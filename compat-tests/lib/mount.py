"""Small file systems of a test's own: a tmpfs, or an ext4 in a file. What happens to disks is done to them here."""
import os
import re
import shutil
import subprocess
from pathlib import Path


MAY_MOUNT = 1 << 21  # CAP_SYS_ADMIN, which root in a container may lack


def why_not():
    """Why file systems cannot be mounted here; None where they can."""
    may = int(re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.M).group(1), 16)
    if not may & MAY_MOUNT:
        return "it takes root"
    if not shutil.which("mkfs.ext4"):
        return "it takes mkfs.ext4"
    return None if Path("/dev/loop-control").exists() else "it takes loop devices"


def call(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.strip()}")


class Mount:
    def __init__(self, path, kind, size_mb):
        self.path, self.kind, self.image = Path(path), kind, Path(f"{path}.image")
        self.path.mkdir()
        if kind == "tmpfs":
            call("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", self.path)
        else:
            with self.image.open("wb") as file:
                file.truncate(size_mb << 20)
            call("mkfs.ext4", "-q", "-m", "0", self.image)
            self._mount()

    def _mount(self):
        call("mount", "-o", "loop,errors=remount-ro", self.image, self.path)

    def free(self):
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self, leave=0):
        """Takes up all room but for so many bytes."""
        with (self.path / "filler").open("ab", buffering=0) as file:
            for piece in (1 << 20, 4096, 512, 1):
                while self.free() >= leave + piece:
                    try:
                        if not file.write(bytes(piece)):
                            break
                    except OSError:
                        break
            os.fsync(file.fileno())

    def clear(self):
        (self.path / "filler").unlink()

    def turn_read_only(self):
        """What ext4 does when it finds that something is wrong with it: everybody who has files open for writing finds it read-only
        at once. A remount with `ro` is refused while there are such files."""
        call("mount", "-o", "remount,abort", self.path)

    def repair(self):
        """What an operator does then. Nobody may have a file open there."""
        call("umount", self.path)
        done = subprocess.run(["e2fsck", "-f", "-y", str(self.image)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1: it was repaired
            raise OSError(f"e2fsck ended with {done.returncode}: {done.stdout}{done.stderr}")
        self._mount()

    def close(self):
        """Also where files are open, or it is not mounted any more."""
        if os.path.ismount(self.path):
            call("umount", "--lazy", self.path)
