"""A group under churn: which of its members are in which process, and what is done to them.

Knows no checks. Invariant: a name of a member is used once; a group instance id by one living member at a time.
"""
import signal
import subprocess
import sys
from pathlib import Path

from journal import read
from lib.scenarios import Failed

IN_A_PROCESS = 4
CLASSIC = ["range", "roundrobin", "cooperative-sticky"]  # a group has one; eager and cooperative ones do not go together
STATIC = 3  # every third
ACT_FOR = 20  # one thing more happens at a time for so many members
END_LIMIT_S = 120


class Process:
    """Some members. Their journal is kept when it is killed."""

    def __init__(self, command, log):
        self.log, self.members, self.paused = log, {}, False
        with log.open("ab") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=out, stderr=out, text=True,
                                            start_new_session=True)

    def tell(self, *words):
        try:
            self.process.stdin.write(f"{' '.join(word for word in words if word)}\n")
            self.process.stdin.flush()
        except OSError:
            self.check()

    def check(self):
        if self.process.poll() is not None:
            tail = "\n".join(f"    | {line[:300]}" for line in self.log.read_text(errors="replace").splitlines()[-15:])
            raise Failed(f"the members of {self.log.stem} ended by themselves (exit {self.process.returncode})\n{tail}")

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def begin_to_end(self):
        """All leave in an orderly way."""
        self.process.stdin.close()

    def await_end(self):
        try:
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the members of {self.log.stem} did not leave within {END_LIMIT_S} s") from None
        if self.process.returncode != 0:
            self.check()


class Group:
    def __init__(self, id_, kind, wanted, bootstrap, topic, dice, work):
        self.id, self.kind, self.wanted, self.dice, self.work = id_, kind, wanted, dice, work
        self.arguments = [bootstrap, topic, id_]
        classic = dice.choice(CLASSIC)
        self.protocols = {"classic": [classic], "consumer": ["consumer"], "mixed": [classic, "consumer"]}[kind]
        self.processes, self.number, self.started, self.journals = [], 0, 0, []
        self.instances = [f"instance-{n}" for n in range(1, wanted // STATIC + 1)]  # those that are free
        self.deeds = {"left": 0, "killed": 0, "hung": 0}

    def check(self):
        for process in self.processes:
            process.check()

    @property
    def size(self):
        return sum(len(process.members) for process in self.processes)

    # Members come

    def fill(self):
        """As many members as are wanted."""
        while self.size < self.wanted:
            roomy = [process for process in self.processes if len(process.members) < IN_A_PROCESS and not process.paused]
            self.join(roomy[0] if roomy else self.start())

    def start(self):
        self.started += 1
        name = self.work / f"{self.id}-{self.started}"
        self.journals.append(name.with_suffix(".journal"))
        command = [sys.executable, Path(__file__).with_name("member.py"), *self.arguments, self.journals[-1]]
        self.processes.append(Process(command, name.with_suffix(".log")))
        return self.processes[-1]

    def join(self, process):
        self.number += 1
        name, protocol = f"member-{self.number}", self.dice.choice(self.protocols)
        instance = self.instances.pop(0) if self.instances and self.number % STATIC == 0 else None
        process.members[name] = instance
        process.tell("join", name, protocol, instance)

    # Members go

    def act(self):
        """Some of the things that happen to members; whoever is missing afterwards comes anew."""
        for process in self.processes:
            if process.paused:
                process.resume()
        for deed in self.dice.choices([self.leave, self.kill, self.pause], [5, 3, 1], k=1 + self.wanted // ACT_FOR):
            deed()
        self.fill()

    def leave(self):
        process = self.dice.choice(self.processes)
        if process.members:
            name = self.dice.choice(sorted(process.members))
            process.tell("leave", name)
            self.release(process.members.pop(name))
            self.deeds["left"] += 1

    def kill(self):
        process = self.dice.choice(self.processes)
        process.kill()
        self.forget(process)
        self.deeds["killed"] += 1

    def pause(self):
        """Until the next thing happens; it may be taken for gone meanwhile."""
        self.dice.choice(self.processes).pause()
        self.deeds["hung"] += 1

    def release(self, *instances):
        self.instances += [instance for instance in instances if instance]

    def forget(self, process):
        self.processes.remove(process)
        self.release(*process.members.values())

    # The end

    def settle(self):
        for process in self.processes:
            if process.paused:
                process.resume()
        self.fill()

    def end(self):
        """Everybody leaves in an orderly way."""
        for process in self.processes:
            process.begin_to_end()
        for process in list(self.processes):
            process.await_end()
            self.forget(process)

    def begin_anew(self):
        """Members after all others have left; what was written down so far is no longer of interest."""
        self.journals = []
        self.fill()

    def events(self):
        return [event for journal in self.journals if journal.exists() for event in read(journal)]

    def close(self):
        for process in self.processes:
            process.kill()
