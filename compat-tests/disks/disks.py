"""Sick disks, for real: three brokers with two log directories each, every one on a small ext4 of its own. While stock clients produce
with acks=all and consume, one directory after the other fails under them:

    read_only      its file system turns read-only, as ext4 does when it finds that something is wrong with it
    dead           reads, writes and syncs fail with EIO
    dead_at_start  the same, and the broker is killed with SIGKILL and started again meanwhile
    syncs          writes go well, and syncs fail with EIO

Each time the broker must stay up and serve its other directory and new topics, what it led there must be led by others, and clients
must go on. When the disk works again and the broker has been started anew, it must take the directory back: all replicas in sync. (`--restart 0`
demands that without a start.) In the end the checker of the cluster test must find nothing in what the clients have seen. Then come moves between the directories of one broker (moves.py).

The file systems need root; without it directories are plain ones, and `read_only` is not run. EIO needs a kernel that hands calls over
(lib/faulty.c); without it only `read_only` is run. Which directories fail, and in which order, comes from a seed, which is printed.
"""
import os
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "cluster"))
import cluster as cluster_test
import moves
from cluster import GO_ON_LIMIT_S, no_anomaly
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from lib import mount, toolchain
from lib.driver import Driver, Refused
from lib.faulty import READS, SYNCS, WRITES, Faulty, available
from lib.program import main
from lib.scenarios import Failed
from nodes import Cluster
from workload import View, create_topic, read_log

SIZE_MB = 64
DIRECTORIES = ("one", "two")
FAIL_LIMIT_S, REST_LIMIT_S, BACK_LIMIT_S, LOOK_S = 30, 30, 90, 0.05
INJECTED = {"dead": READS | WRITES | SYNCS, "dead_at_start": READS | WRITES | SYNCS, "syncs": SYNCS}


class Disk:
    """What one log directory of a node lies on."""

    def __init__(self, node, path, faulty, mounted):
        self.node, self.faulty = node, faulty
        path.parent.mkdir(parents=True, exist_ok=True)
        self.mount = mount.Mount(path, "ext4", SIZE_MB) if mounted else path.mkdir()
        self.directory, self.is_sick = path / "logs", False

    def fail(self, fault):
        self.is_sick = True
        if fault == "read_only":
            self.mount.turn_read_only()
        else:
            self.faulty.fail(INJECTED[fault], f"{self.directory}/")

    def repair(self, fault):
        if not self.is_sick:
            return
        self.is_sick = False
        if fault == "read_only":
            self.mount.repair()
        elif not self.faulty.disarm():
            raise Failed("no call has failed, so that this has shown nothing")

    def close(self):
        if self.mount:
            self.mount.close()


class Run(cluster_test.Run):
    """The clients of the cluster test, and directories that fail."""

    def __init__(self, cluster, disks, restarts, *rest):
        super().__init__(cluster, *rest)
        self.disks, self.restarts, self.struck, self.topics = disks, restarts, set(), 0
        self.asks = Driver("java", toolchain.java("JavaDriver"), cluster.bootstrap, cluster.work / "asks.log")

    def await_that(self, holds, limit_s, complaint):
        deadline = time.monotonic() + limit_s
        while not holds():
            self.cluster.check()
            if time.monotonic() > deadline:
                raise Failed(f"{complaint()} after {limit_s} s")
            time.sleep(LOOK_S)

    def told(self, node):
        """What the node says of its directories, by path."""
        try:
            return self.asks.call("directories", brokers=[node])[str(node)]
        except Refused:
            return {}

    def held(self, disk):
        """The partitions of the topic in its directory."""
        replicas = self.told(disk.node).get(str(disk.directory), {"replicas": {}})["replicas"]
        names = [name.rsplit("-", 1) for name in replicas]
        return {int(partition) for topic, partition in names if topic == self.view.topic}

    def led_by(self, node):
        return {n for n, partition in self.view.partitions().items() if partition.leader == node}

    def elect_preferred(self):
        """So that every node leads something."""
        self.view.await_full_isr(self.replicas, BACK_LIMIT_S)
        partitions = [TopicPartition(self.view.topic, n) for n in self.view.partitions()]
        try:
            self.view.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._PARTIAL:
                raise
        self.view.await_that("the first replicas do not lead", lambda told: all(p.leader == p.replicas[0] for p in told.values()))

    def choose(self):
        """A directory in which its node leads a partition; one that has failed before only when there is no other."""
        self.elect_preferred()
        at_risk = [disk for disk in self.disks if self.held(disk) & self.led_by(disk.node)]
        fresh = [disk for disk in at_risk if disk not in self.struck]
        disk = self.dice.choice(fresh or at_risk)
        self.struck.add(disk)
        return disk

    def strike_disk(self, fault):
        """One directory fails, and comes back."""
        disk = self.choose()
        node, lost, led = disk.node, self.held(disk), self.led_by(disk.node)
        begun, works = time.monotonic(), False
        disk.fail(fault)
        try:
            failed_s, moved_s = self.go_on_without(disk, fault, lost, led - lost)
            if fault == "dead_at_start":
                self.cluster.kill(node)
                self.cluster.restart(node)
                self.go_on_without(disk, fault, lost, set())
            process = self.cluster.nodes[node].process
            if self.restarts:
                self.restart(disk, fault)
            else:
                self.repair_alive(disk, fault)
            back_s = self.view.await_full_isr(self.replicas, BACK_LIMIT_S)
            works = True
        finally:
            if not works:  # what comes next is to find it well
                self.restart(disk, fault)
        self.await_that(lambda: not self.error_of(disk) and self.held(disk) == lost, BACK_LIMIT_S,
                        lambda: f"{disk.directory} has {self.held(disk)} instead of {lost}, and '{self.error_of(disk)}'")
        self.await_progress(time.monotonic(), f"after {fault} under {disk.directory}")
        if not self.restarts and self.cluster.nodes[node].process is not process:
            raise Failed(f"node {node} was started again")
        gap_s = max(streamer.gap_s(begun - 0.5, time.monotonic()) for streamer in self.streamers)
        print(f"        {fault} under {disk.directory.parent.name} of node {node} (there {sorted(lost)}, led {sorted(led & lost)}): out of service after "
              f"{failed_s:.2f} s, led by others after {moved_s:.2f} s, longest gap {gap_s:.2f} s, in-sync sets full {back_s:.1f} s after the repair", flush=True)

    def go_on_without(self, disk, fault, lost, kept_lead):
        """Waits until others lead what is lost; the rest is served, and new topics are, and everybody goes on. How long it took to
        take the directory out of service, and until others led."""
        node, begun = disk.node, time.monotonic()
        self.await_that(lambda: self.error_of(disk) == "KAFKA_STORAGE_ERROR", FAIL_LIMIT_S,
                        lambda: f"{disk.directory} has failed ({fault}), and node {node} says '{self.error_of(disk)}' of it")
        failed_s = time.monotonic() - begun
        self.view.await_that(f"partitions {sorted(lost)} are led by node {node}, or it counts as in sync", lambda told: all(
            told[n].leader not in (node, -1) and node not in told[n].isrs for n in lost), GO_ON_LIMIT_S)
        moved_s = time.monotonic() - begun
        serves_the_rest = lambda told: all(node in told[n].isrs for n in set(told) - lost) and all(told[n].leader == node for n in kept_lead)
        self.view.await_that(f"node {node} does not serve what is in its other directory", serves_the_rest, GO_ON_LIMIT_S)
        self.await_progress(time.monotonic(), f"{fault} under {disk.directory}")
        read_log(self.cluster, self.view.topic)
        self.topics += 1
        create_topic(self.cluster, f"meanwhile-{self.topics}", self.replicas)
        View(self.cluster, f"meanwhile-{self.topics}").await_full_isr(self.replicas, GO_ON_LIMIT_S)
        self.view.await_that(f"node {node} does not serve what is in its other directory any more", serves_the_rest, GO_ON_LIMIT_S)
        return failed_s, moved_s

    def error_of(self, disk):
        """What its node says of it; nothing as long as it says nothing at all."""
        return self.told(disk.node).get(str(disk.directory), {"error": ""})["error"]

    def repair_alive(self, disk, fault):
        if fault == "read_only":
            # Else nobody could repair it under a broker that runs.
            held = lambda: open_below(self.cluster.nodes[disk.node].process.pid, disk.directory)
            self.await_that(lambda: not held(), REST_LIMIT_S, lambda: f"node {disk.node} has files open in {disk.directory}, which is out of service: {held()[:5]}")
        disk.repair(fault)

    def restart(self, disk, fault):
        self.cluster.end(disk.node)
        disk.repair(fault)
        self.cluster.restart(disk.node)

    def close(self):
        for driver in [self.asks, *(caller.driver for caller in self.callers)]:
            driver.close()


def open_below(pid, directory):
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            path = os.readlink(link)
        except FileNotFoundError:
            continue
        if path.startswith(f"{directory}/") or path == str(directory):
            found.append(path)
    return found


def the_disks(options, ids, program, mounted):
    disks = []
    try:
        for node in ids:
            faulty = Faulty(program, options.work / f"control-{node}") if program else None
            for name in DIRECTORIES:
                disks.append(Disk(node, options.work / f"disks-{node}" / name, faulty, mounted))
        return disks
    except BaseException:
        for disk in disks:
            disk.close()
        raise


def sick_disks(options, report, dice, program, faults, mounted):
    disks = the_disks(options, [1, 2, 3], program, mounted)
    settings = lambda node: {"log.dirs": ",".join(str(disk.directory) for disk in disks if disk.node == node),
                             "metadata.log.dir": str(options.work / f"node-{node}/metadata")}
    cluster, run, ended = Cluster(options.command, options.work, 3, settings, proxied=False), None, False
    try:
        for disk in disks:
            if disk.faulty:
                cluster.nodes[disk.node].command = disk.faulty.command([str(word) for word in options.command])
        cluster.start()
        clients = {"franz-go": [toolchain.franz_go()], "java": toolchain.java("JavaDriver")}
        run = Run(cluster, disks, bool(options.restart), report, dice, clients, options.work)
        run.await_progress(time.monotonic(), "at the beginning")
        for number in range(max(len(faults), options.rounds - 2)):
            fault = faults[number % len(faults)]
            report.check(f"disks: {number + 1}: clients go on, and the directory comes back: {fault}", run.strike_disk, fault)
        histories = []
        report.check("disks: clients come to their end", lambda: histories.append(run.finish()))
        if histories:
            report.check("disks: nothing lost, doubled, skipped, unseen or out of order", no_anomaly, histories[0])
        report.check("disks: all nodes stop in an orderly way", cluster.stop)
        ended = True
    finally:
        if run:
            run.close()
        cluster.close(keep=not ended or bool(report.failures))
        for disk in disks:
            disk.close()


def disks_test(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.rounds} kills", flush=True)
    unmountable = mount.why_not()
    program, uncatchable = available(options.work)
    faults = [*([] if unmountable else ["read_only"]), *(INJECTED if program else [])]
    if unmountable:
        print(f"        disks: read-only file systems are not run, for nothing can be mounted: {unmountable}", flush=True)
    if uncatchable:
        print(f"        disks: EIO and kills at renames are not run, for calls cannot be caught: {uncatchable}", flush=True)
    if faults:
        dice.shuffle(faults)
        sick_disks(options, report, dice, program, faults, not unmountable)
    moves.check(options, report, dice, program)


if __name__ == "__main__":
    main(__doc__, disks_test, rounds=6, restart=1, seed=random.SystemRandom().randrange(1_000_000))
