"""The checker on made-up histories: a sound one has no anomaly, and each fault is found under its name, alone or among
others that it entails. `python3 test_checker.py` runs them; the cluster part does so first."""
import copy
import random
import unittest

from checker import History, Send, check


def sound(seed=0, records=30, partitions=2):
    """A run without faults: two producers, two consumers, one of which stopped early; the last sends are unanswered."""
    dice = random.Random(seed)
    history = History(final={partition: [] for partition in range(partitions)}, caught_up={"whole"},
                      polls={"whole": [], "partial": []})
    for number in range(records):
        partition = dice.randrange(partitions)
        send = Send(dice.choice("ab"), partition, f"v{number}")
        history.sends.append(send)
        if number >= records - 3 and dice.random() < 0.5:
            continue  # it never arrived, and the producer does not know
        log = history.final[partition]
        log.append((len(log), send.value))
        send.offset = len(log) - 1 if number < records - 3 else None
    order = [(partition, *entry) for partition, log in history.final.items() for entry in log]
    history.polls["whole"] = order
    history.polls["partial"] = [poll for poll in order if poll[1] < 3]
    return history


def kinds(history):
    return {kind for kind, _ in check(history)}


class MadeUp(unittest.TestCase):
    def setUp(self):
        self.history = sound()

    def expect(self, *expected):
        self.assertEqual(kinds(self.history), set(expected))

    def test_sound(self):
        for seed in range(50):
            self.assertEqual(check(sound(seed)), [])

    def test_lost_at_the_end(self):
        self.history.final[0].pop()
        victim = self.history.polls["whole"]
        last = max((poll for poll in victim if poll[0] == 0), key=lambda poll: poll[1])
        victim.remove(last)
        answered = {send.value for send in self.history.sends if send.offset is not None}
        self.expect(*(["lost"] if last[2] in answered else []))
        self.history.final[0].pop()
        self.assertIn("lost", kinds(self.history))

    def test_lost_and_replaced(self):
        offset, _ = self.history.final[1][2]
        self.history.final[1][2] = (offset, "other")
        self.expect("lost", "vanished", "inconsistent offset")

    def test_vanished(self):
        self.history.polls["partial"].append((0, 3, "never"))
        self.history.polls["partial"].sort(key=lambda poll: poll[:2])
        self.expect("vanished", "inconsistent offset")
        self.history = sound()
        end = len(self.history.final[0])
        self.history.polls["whole"].append((0, end, "gone"))
        self.expect("vanished")

    def test_duplicate(self):
        log = self.history.final[0]
        again = (len(log), log[0][1])
        log.append(again)
        self.history.polls["whole"].append((0, *again))
        self.expect("duplicate")
        self.history.plain = {"a", "b"}
        self.expect()

    def test_inconsistent_offset(self):
        send = next(send for send in self.history.sends if send.offset == 1)
        twin = Send("c", send.partition, "twin", 1)
        self.history.sends.append(twin)
        self.expect("lost", "inconsistent offset")

    def test_sends_out_of_order(self):
        one, other = [send for send in self.history.sends if send.producer == "a" and send.partition == 0][:2]
        at, to = self.history.sends.index(one), self.history.sends.index(other)
        self.history.sends[at], self.history.sends[to] = other, one
        self.expect("non-monotonic send")
        self.history.plain = {"a"}
        self.expect()

    def test_polls_that_go_back(self):
        polled = self.history.polls["whole"]
        polled.append(polled[-1])
        self.expect("non-monotonic poll")
        self.history = sound()
        self.history.polls["partial"] += [poll for poll in self.history.polls["partial"] if poll[0] == 1]
        self.expect("non-monotonic poll")

    def test_skipped_and_unseen(self):
        del self.history.polls["whole"][2]
        self.expect("skipped poll", "unseen")
        self.history = sound()
        del self.history.polls["partial"][0]
        self.expect("skipped poll")

    def test_unseen_at_the_end(self):
        self.history.polls["whole"].pop()
        self.expect("unseen")
        self.history = sound()
        self.history.polls["whole"] = []
        self.expect("unseen")
        self.history.caught_up = set()
        self.expect()

    def test_hole(self):
        log = self.history.final[0]
        log.append((len(log) + 5, "far"))
        self.history.polls["whole"].append((0, *log[-1]))
        self.expect("hole")

    def test_any_change_to_the_log_is_found(self):
        for seed in range(200):
            history, dice = sound(seed), random.Random(seed)
            broken = copy.deepcopy(history)
            partition = dice.choice([p for p, log in broken.final.items() if len(log) > 1])
            log = broken.final[partition]
            at = dice.randrange(len(log))
            change = dice.choice(["remove", "swap", "double", "rewrite"])
            if change == "remove":
                log[at:] = [(offset - 1, value) for offset, value in log[at + 1:]]
            elif change == "swap":
                other = (at + 1) % len(log)
                (o1, v1), (o2, v2) = log[at], log[other]
                log[at], log[other] = (o1, v2), (o2, v1)
            elif change == "double":
                log.append((len(log), log[at][1]))
            else:
                log[at] = (log[at][0], "rewritten")
            self.assertTrue(check(broken), (seed, change))


if __name__ == "__main__":
    unittest.main()
