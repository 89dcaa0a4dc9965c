"""The cluster test: three processes behind a proxy of ours, stock clients that write and read, and one fault after the other:
kill -9, clean stops, SIGSTOP for long and for short, a node that is cut off, one that its peers alone lose, one that can call
but not be called, connections that break. Each fault must leave the clients going on while it lasts, and the in-sync sets
full after it.

In the end the log is read back, and the checker (checker.py) looks for every anomaly in what the clients have seen. The order
of the faults and their victims come from a seed, which is printed: `--seed N` repeats them.
"""
import collections
import random
import time
import unittest

import test_checker
from checker import check
from lib import toolchain
from lib.program import main
from lib.scenarios import Failed
from nodes import Cluster
from workload import Caller, Streamer, View, Watcher, create_topic, history_of, read_log

TOPIC = "cluster-test"
GO_ON_LIMIT_S = 20  # acknowledgements in every partition again, while a fault lasts
ISR_LIMIT_S = 45
LONG_S, SHORT_S = 5.0, 1.2


def checker_bites():
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(test_checker).run(result)
    if not result.wasSuccessful() or not result.testsRun:
        raise Failed(f"{result.testsRun} tests, {result.failures + result.errors}")


class Faults:
    """Each method does one fault to a node and returns what ends it."""

    def __init__(self, cluster, dice):
        self.cluster, self.dice = cluster, dice

    def kill(self, node):
        self.cluster.kill(node)
        return lambda: self.cluster.restart(node)

    def clean_stop(self, node):
        self.cluster.end(node)
        return lambda: self.cluster.restart(node)

    def pause(self, node):
        self.cluster.pause(node)
        return lambda: self.cluster.resume(node)

    def cut_off(self, node):
        self.cluster.isolate(node)
        return self.cluster.heal

    def lost_by_its_peers(self, node):
        self.cluster.isolate(node, clients=False)
        return self.cluster.heal

    def cannot_be_called(self, node):
        self.cluster.cut([other for other in self.cluster.ids if other != node], [node])
        return self.cluster.heal

    def connections_break(self, node):
        for _ in range(3):
            self.cluster.reset(node)
            time.sleep(self.dice.uniform(0.1, 0.5))
        return lambda: None


class Run:
    def __init__(self, cluster, report, dice, clients, work):
        self.cluster, self.report, self.dice = cluster, report, dice
        self.faults, self.view = Faults(cluster, dice), View(cluster, TOPIC)
        replicas = min(3, len(cluster.ids))
        self.replicas = replicas
        create_topic(cluster, TOPIC, replicas)
        self.streamers = [Streamer(cluster, TOPIC, name) for name in ("librdkafka-1", "librdkafka-2")]
        self.callers = [Caller(command, cluster, TOPIC, name, work / f"{name}.log") for name, command in clients.items()]
        self.watchers = [Watcher(cluster, TOPIC, f"watcher-{n}") for n in (1, 2)]
        self.counts = collections.Counter()

    @property
    def writers(self):
        return [*self.streamers, *self.callers]

    def await_progress(self, since, what):
        """Waits until every partition has acknowledged a record that came after `since`."""
        deadline = time.monotonic() + GO_ON_LIMIT_S
        waiting = set(range(len(self.streamers[0].acknowledged_at)))
        while waiting:
            for partition in list(waiting):
                stamps = self.streamers[0].acknowledged_at[partition]
                if stamps and stamps[-1] > since:
                    waiting.discard(partition)
            self.cluster.check()
            if time.monotonic() > deadline:
                raise Failed(f"{what}: partitions {sorted(waiting)} acknowledged nothing for {GO_ON_LIMIT_S} s")
            time.sleep(0.02)

    def strike(self, fault, node, lasts_s, goes_on=True):
        """One fault from beginning to end. `goes_on`: while it lasts, too."""
        begun = time.monotonic()
        leads = [n for n, p in sorted(self.view.partitions().items()) if p.leader == node]
        end = getattr(self.faults, fault)(node)
        time.sleep(lasts_s)
        try:
            if goes_on and len(self.cluster.ids) > 1:
                self.await_progress(time.monotonic(), f"{fault} of node {node}")
        finally:
            end()
        ended = time.monotonic()
        self.await_progress(ended, f"after {fault} of node {node}")
        back_s = self.view.await_full_isr(self.replicas, ISR_LIMIT_S)
        gap_s = max(streamer.gap_s(begun - 0.5, time.monotonic()) for streamer in self.streamers)
        print(f"        {fault} of node {node} (led {leads}): longest gap {gap_s:.2f} s, in-sync sets full {back_s:.1f} s after it", flush=True)

    def finish(self):
        for writer in self.writers:
            writer.finish()
        log = read_log(self.cluster, TOPIC)
        for watcher in self.watchers:
            watcher.wait_until({partition: len(records) for partition, records in log.items()})
            watcher.finish()
        return history_of(self.writers, self.watchers, log)


def plan(dice, ids, rounds):
    """The faults in their order: each node is killed once, and the rest comes as the dice fall."""
    killed = dice.sample(ids, len(ids))
    others = ["pause", "stall", "clean_stop", "cut_off", "lost_by_its_peers", "cannot_be_called", "connections_break"]
    faults = [("kill", node) for node in killed] + [(fault, dice.choice(ids)) for fault in others]
    dice.shuffle(faults)
    return (faults * (rounds // len(faults) + 1))[:rounds]


def no_anomaly(history):
    found = check(history)
    acknowledged = sum(send.offset is not None for send in history.sends)
    print(f"        {len(history.sends)} records sent, {acknowledged} acknowledged, {sum(map(len, history.final.values()))} in the log", flush=True)
    if not acknowledged or not any(history.polls.values()):
        raise Failed("nothing was acknowledged, or nothing read")
    if found:
        kinds = collections.Counter(kind for kind, _ in found)
        shown = "\n".join(f"    {kind}: {text}" for kind, text in found[:20])
        raise Failed(f"{dict(kinds)}\n{shown}")


def cluster_test(options, report):
    dice = random.Random(options.seed)
    print(f"        seed {options.seed}, {options.rounds} faults, {options.nodes} nodes", flush=True)
    report.check("cluster: the checker finds each anomaly in made-up histories", checker_bites)
    clients = {"franz-go": [toolchain.franz_go()], "java": toolchain.java("JavaDriver")}
    cluster, run, ended = Cluster(options.command, options.work, options.nodes), None, False
    try:
        cluster.start()
        print(f"        started in {max(node.started_in_s for node in cluster.nodes.values()):.2f} s", flush=True)
        run = Run(cluster, report, dice, clients, options.work)
        run.await_progress(time.monotonic(), "at the beginning")
        for number, (fault, node) in enumerate(plan(dice, cluster.ids, options.rounds), 1):
            name, lasts_s = ("pause", SHORT_S) if fault == "stall" else (fault, dice.uniform(1, 3) if fault == "kill" else LONG_S)
            report.check(f"cluster: {number}: clients go on over {fault.replace('_', ' ')}", run.strike, name, node, lasts_s, fault != "stall")
        histories = []
        report.check("cluster: clients come to their end", lambda: histories.append(run.finish()))
        if histories:
            report.check("cluster: nothing lost, doubled, skipped, unseen or out of order", no_anomaly, histories[0])
        for caller in run.callers:
            answered = sum(send.offset is not None for send in caller.sends)
            print(f"        {caller.name}: {len(caller.sends)} records, {answered} acknowledged, {caller.refused} requests failed", flush=True)
        report.check("cluster: all nodes stop in an orderly way", cluster.stop)
        ended = True
    finally:
        for caller in run.callers if run else []:
            caller.driver.close()
        cluster.close(keep=not ended or bool(report.failures))


if __name__ == "__main__":
    main(__doc__, cluster_test, rounds=10, nodes=3, seed=random.SystemRandom().randrange(1_000_000))
