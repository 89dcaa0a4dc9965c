"""The frame judges rightly: run by `python3 -m unittest discover -s compat-tests/lib -t compat-tests`."""
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

from lib import servers, suites, table
from lib.broker import free_ports
from lib.compose import Compose
from lib.outcome import FAILED, NOT_APPLICABLE, PASSED, Outcome, judge, parse_expected, read_result, write_result
from lib.sniffer import Watch, seen

LIST = """
# a comment
failed  broken -- issue 7
n/a     inside* -- looks inside
"""


class Judging(unittest.TestCase):
    def judged(self, *outcomes, whole=False):
        outcomes, surprises = judge([Outcome(*outcome) for outcome in outcomes], parse_expected(LIST), whole)
        return [(o.test, o.what, o.reason) for o in outcomes], surprises

    def test_as_listed(self):
        outcomes, surprises = self.judged(("broken", FAILED, "x"), ("inside-1", FAILED, "y"), ("fine", PASSED), whole=True)
        self.assertEqual(surprises, [])
        self.assertEqual(outcomes, [("broken", FAILED, "issue 7"), ("inside-1", NOT_APPLICABLE, "looks inside"), ("fine", PASSED, "")])

    def test_worse(self):
        self.assertEqual(self.judged(("fine", FAILED, "why"))[1], ["fine failed: why"])

    def test_better_must_go(self):
        self.assertEqual(self.judged(("broken", PASSED))[1], ["broken passes: take it off the list"])
        self.assertEqual(self.judged(("inside-1", PASSED), ("inside-2", PASSED))[1], ["inside*: all of it passes: take it off the list"])
        self.assertEqual(self.judged(("inside-1", PASSED), ("inside-2", FAILED, ""))[1], [])

    def test_what_one_broker_cannot_do_three_may(self):
        listed, outcomes = parse_expected("n/a three -- wants three\nfailed ever -- issue 7\n"), [Outcome("three", PASSED), Outcome("ever", PASSED)]
        self.assertEqual(judge(outcomes, listed, whole=False, one_broker=False)[1], ["ever passes: take it off the list"])

    def test_lines_that_no_test_matches_must_go(self):
        _, surprises = self.judged(("fine", PASSED), whole=True)
        self.assertEqual(len(surprises), 2)

    def test_a_line_without_a_reason_is_an_error(self):
        for line in ("failed x", "failed x -- ", "flaky x -- y"):
            with self.assertRaises(ValueError):
                parse_expected(line)

    def test_results_are_read_as_they_were_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path, outcomes = Path(folder) / "r.txt", [Outcome("a b", FAILED, "why: so"), Outcome("c", PASSED)]
            write_result(path, {"suite": "s", "protocol": ""}, outcomes)
            self.assertEqual(read_result(path), ({"suite": "s", "protocol": ""}, outcomes))


class Running(unittest.TestCase):
    def run_suite(self, code, limit_s=20, log=""):
        """The outcomes of a suite whose program is this piece of Python."""

        def run(context):
            (context.work / "node-1.log").write_text(log)
            for line in context.lines([sys.executable, "-c", code], "program"):
                yield Outcome(line, PASSED)

        suite = types.SimpleNamespace(CLIENT="c", VERSION="1", LIMIT_S=limit_s, OWN_BROKERS=True, setup=lambda: None, run=run)
        options = types.SimpleNamespace(against=None, docker=False, select=[], brokers=1, binary=Path("none"), kafka=False, own_brokers=True)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(suites, "load", lambda name: suite):
            outcomes = suites.run_suite("fake", options, Path(folder) / "work")[1]
        return {outcome.test: outcome for outcome in outcomes}

    def test_a_suite_that_hangs_is_ended_with_all_that_it_started(self):
        marker = f"hang-{time.monotonic_ns()}"
        code = f"import subprocess, time; subprocess.Popen(['sh', '-c', 'sleep 600; : {marker}']); print('one', flush=True); time.sleep(600)"
        outcomes = self.run_suite(code, limit_s=10)  # time enough for Python to start on a busy machine
        self.assertEqual(outcomes["one"].what, PASSED)
        self.assertEqual(outcomes["the time limit"].what, FAILED)
        left = subprocess.run(["pgrep", "-f", f": {marker}$"], capture_output=True, text=True).stdout
        self.assertEqual(left, "")

    def test_a_panic_in_a_node_fails_the_suite(self):
        outcomes = self.run_suite("print('one')", log="x\nthread 'shard-0' panicked at src/a.rs:1:2:\nno\n")
        self.assertIn("panicked at src/a.rs", outcomes["no panic in node-1.log"].reason)

    def test_a_node_that_ended_unasked_fails_the_suite(self):
        outcomes = self.run_suite("print('one')", log="=== node 1 ended by itself, with 1\n")
        self.assertEqual(outcomes["no end unasked in node-1.log"].what, FAILED)

    def test_a_suite_without_a_test_has_failed(self):
        self.assertEqual(self.run_suite("")["the suite"].what, FAILED)


class Serving(unittest.TestCase):
    def served_by(self, own_brokers, **options):
        """What is under a suite: its own brokers or an address."""
        options = types.SimpleNamespace(**{"against": None, "docker": False, "kafka": False, **options, "own_brokers": own_brokers})
        return suites.the_servers(types.SimpleNamespace(OWN_BROKERS=True), options, Path("work"))

    def test_a_suite_with_its_own_brokers_starts_them_where_it_has_a_binary(self):
        self.assertIsNone(self.served_by(own_brokers=True, against="there:9092"))
        self.assertEqual(self.served_by(own_brokers=False, against="there:9092").bootstrap, "there:9092")

    def obstacle(self, suite, brokers=1, **options):
        options = {"against": None, "docker": False, "kafka": False, **options}
        options["own_brokers"] = not options["kafka"] and not options["against"]
        return suites.obstacle(types.SimpleNamespace(**suite), types.SimpleNamespace(brokers=brokers, **options))

    def test_what_a_suite_asks_of_its_brokers_is_seen_to_or_the_suite_is_left_out(self):
        free, fixed, own = {}, {"PORTS": [9092], "FIRST_ID": 0}, {"OWN_BROKERS": True}
        five = {"BROKERS": 5, "ADVERTISED": [1, 2, 3, 4, 5]}
        for options in ({}, {"brokers": 3}, {"docker": True}, {"docker": True, "brokers": 3}, {"kafka": True}, {"against": "a:1"}):
            self.assertIsNone(self.obstacle(free, **options), options)
        for suite, options in [(fixed, {}), (fixed, {"docker": True}), (fixed, {"against": "localhost:9092"}), (own, {}), (five, {}),
                               (own, {"docker": True, "brokers": 3}), (five, {"kafka": True}), (five, {"against": "a:1"})]:
            self.assertIsNone(self.obstacle(suite, **options), (suite, options))
        for suite, options in [(fixed, {"brokers": 3}), (fixed, {"docker": True, "brokers": 3}), (fixed, {"against": "a:9092"}),
                               (own, {"kafka": True}), (own, {"brokers": 3}), (five, {"brokers": 3}), (five, {"docker": True, "brokers": 3}),
                               (five, {"docker": True}), ({"FIRST_ID": 0}, {"docker": True, "brokers": 3})]:
            self.assertTrue(self.obstacle(suite, **options), (suite, options))

    def test_every_recorded_suite_that_three_brokers_are_for_is_run_on_them(self):
        options = types.SimpleNamespace(brokers=3, against=None, docker=True, kafka=False, own_brokers=True)
        self.assertLessEqual({"confluent", "franz-go", "kafka-its", "librdkafka"}, set(suites.usual(options)))
        self.assertFalse({"sarama-functional", "rdkafka"} & set(suites.usual(options)))

    def test_containers_get_the_settings_that_a_suite_asks_for(self):
        asked = {"message.max.bytes": "7", "broker.rack": "r{id}"}
        three = servers.compose_settings(3, asked, 1)["services"]
        self.assertEqual(three["kafka-2"]["environment"], {"KAFKA_MESSAGE_MAX_BYTES": "7", "KAFKA_BROKER_RACK": "r2"})
        one = servers.compose_settings(1, asked, 0)["services"]["kafka"]["environment"]
        self.assertEqual((one["KAFKA_NODE_ID"], one["KAFKA_CONTROLLER_QUORUM_VOTERS"]), ("0", "0@localhost:9093"))
        self.assertEqual((one["KAFKA_PROCESS_ROLES"], one["KAFKA_BROKER_RACK"]), ("broker,controller", "r0"))
        self.assertEqual(servers.compose_settings(1, {}, 1), {"version": "2.4"})
        self.assertEqual(servers.variable("a_b.c-d"), "KAFKA_A__B_C___D")

    def test_no_port_is_given_twice_or_to_outgoing_connections(self):
        ports = free_ports(5) + free_ports(5)
        self.assertEqual(len(set(ports)), 10)
        self.assertLess(max(ports), 32768)


class Composing(unittest.TestCase):
    def test_the_stand_in_for_docker_stops_and_starts_brokers_and_shows_their_logs(self):
        with tempfile.TemporaryDirectory() as folder:
            node = types.SimpleNamespace(process="runs", log=Path(folder) / "log")
            node.stop, node.start = lambda: setattr(node, "process", None), lambda: setattr(node, "process", "again")
            node.log.write_text("of the test before\n")
            compose = Compose([node], Path(folder) / "docker")
            self.addCleanup(compose.close)
            compose.test_begins()
            node.log.write_text("of the test before\nof this test\n")

            def docker(*words):
                done = subprocess.run(["docker", *words], env={**os.environ, **compose.environment()}, capture_output=True, text=True)
                return done.returncode, done.stdout, node.process

            self.assertEqual(docker("compose", "start", "kafka-1"), (0, "", "runs"))
            self.assertEqual(docker("compose", "stop", "kafka-1"), (0, "", None))
            self.assertEqual(docker("compose", "start", "kafka-1"), (0, "", "again"))
            self.assertEqual(docker("compose", "logs", "--since", "now", "kafka-1"), (0, "of this test\n", "again"))
            for words in [("compose", "stop", "kafka-2"), ("compose", "exec", "kafka-1"), ("run", "kafka-1"), ()]:
                self.assertEqual((docker(*words)[0], node.process), (1, "again"), words)
            node.stop()
            compose.test_begins()
            self.assertEqual(node.process, "again", "what a test has left stopped")


class Librdkafka(unittest.TestCase):
    """What its suite reads in the sources and in the logs."""

    suite = suites.load("librdkafka")

    def test_the_parts_of_the_admin_test_are_the_functions_that_begin_one(self):
        text = "static void do_test_A(int a) {\n SUB_TEST_QUICK();\n}\nstatic void\ndo_test_B(void) { SUB_TEST();}\nstatic void do_test_all(void) {}\n"
        self.assertEqual(self.suite.parts(text), ["do_test_A", "do_test_B"])

    def test_lines_of_its_log(self):
        found = self.suite.PART.search("[0081_admin                  /  1.2s] [ do_test_A:78: a b, op_timeout 3: PASS (1.20s) ]")
        self.assertEqual(found.groups(), ("do_test_A", "PASS", None))
        found = self.suite.PART.search("[0081_admin                  /  1.2s] [ do_test_A:78: x: SKIP: wants more ]")
        self.assertEqual(found.groups(), ("do_test_A", "SKIP", "wants more"))
        found = self.suite.SKIPPING.match("[0153_memberid               /  0.000s] WARN: SKIPPING TEST: not here")
        self.assertEqual(found.groups(), ("0153_memberid", "not here"))
        found = self.suite.SKIPPING.match("[0153_memberid / 0.000s] WARN: SKIPPING TEST: not here[0153_memberid / 0.000s] 0153_memberid: duration 0.008ms")
        self.assertEqual(found[2], "not here")
        self.assertEqual(self.suite.FAILING.match('### Test "0081_admin (do_test_A:78)" failed at a.c:1:f() at now: ###')[1], "0081_admin")


class Sniffing(unittest.TestCase):
    def test_frames_in_pieces(self):
        seen.clear()
        stream = b"".join(len(body).to_bytes(4, "big") + body for body in (b"\0\x12\0\x03" + b"x" * 9, b"\0\x00\0\x0c" + b"y" * 70))
        watch = Watch()
        for at in range(0, len(stream), 5):
            watch.feed(stream[at:at + 5])
        self.assertEqual(seen, {(18, 3), (0, 12)})


class Table(unittest.TestCase):
    def test_it_is_current(self):
        before = (table.PROJECT / "COMPATIBILITY.md").read_text()
        try:
            table.write()
            self.assertEqual((table.PROJECT / "COMPATIBILITY.md").read_text(), before)
        finally:
            (table.PROJECT / "COMPATIBILITY.md").write_text(before)


if __name__ == "__main__":
    unittest.main()
