"""Client driver: kcat as Debian ships it, which is an old librdkafka. It has no admin commands.

kcat sets no timestamps, one set of headers per run (with text values), and cannot tell a null header from an empty one.
One run is made for each group of records that agree in partition and headers.
"""
import itertools
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from protocol import KafkaFailure, decode, encode, serve

LIMIT_S = 30
# Delimiters that no record of the scenarios contains. kcat's \x takes two digits and one byte.
KEY_END, RECORD_END = b"\x1d\x1e\x1d", b"\x1e\x1d\x1e"
FORMAT = "%o %T %K %S %h\\n%k%s\\n"


def run(arguments, data=b"", settle_s=LIMIT_S):
    done = subprocess.run(["kcat", *arguments], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=settle_s)
    text = done.stderr.decode(errors="replace")
    sys.stderr.write(text)
    failed = re.search(r"% ERROR: (.*)|Delivery failed.*?: (.*)|(.*Offset out of range.*)", text)
    if done.returncode != 0 or failed:
        name = "MSG_SIZE_TOO_LARGE" if "too large" in text else "OFFSET_OUT_OF_RANGE" if "ut of range" in text else "KCAT"
        raise KafkaFailure(name, text[-500:])
    return done.stdout, text


class Kcat:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def op_list_topics(self):
        out, _ = run(["-L", "-b", self.bootstrap])
        return sorted(re.findall(r'^  topic "([^"]+)" with', out.decode(), re.M))

    def op_describe_topic(self, topic):
        out, _ = run(["-L", "-b", self.bootstrap, "-t", topic])
        if "Unknown topic or partition" in out.decode():
            raise KafkaFailure("UNKNOWN_TOPIC_OR_PARTITION", topic)
        rows = re.findall(r"partition (\d+), leader (\d+), replicas: ([\d,]+), isrs: ([\d,]+)", out.decode())
        numbers = lambda text: [int(number) for number in text.split(",")]
        return sorted(({"id": int(row[0]), "leader": int(row[1]), "replicas": numbers(row[2]), "isr": numbers(row[3])}
                       for row in rows), key=lambda p: p["id"])

    def op_produce(self, topic, records, compression="none", acks="all", idempotent=True, settings=None):
        for (partition, headers, shape), group in itertools.groupby(records, key=self._run_of):
            group = list(group)
            arguments = ["-P", "-b", self.bootstrap, "-t", topic, "-p", str(partition), "-z", compression,
                         "-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}",
                         "-X", "message.max.bytes=20000000", "-X", f"message.timeout.ms={LIMIT_S * 1000}"]
            for name, value in (settings or {}).items():
                arguments += ["-X", f"{name}={value}"]
            for name, value in headers:
                arguments += ["-H", f"{name}={decode(value).decode()}"]
            if shape == "file":
                self._produce_files(arguments, group)
                continue
            if shape == "null":  # an empty key or value is sent as null
                arguments.append("-Z")
            lines = []
            for record in group:
                key = b"" if shape == "bare" else (decode(record["key"]) or b"") + KEY_END
                lines.append(key + (decode(record["value"]) or b""))
            if shape != "bare":
                arguments += ["-K", "".join(f"\\x{byte:02x}" for byte in KEY_END)]
            run([*arguments, "-D", "".join(f"\\x{byte:02x}" for byte in RECORD_END)], RECORD_END.join(lines))
        return None

    def _run_of(self, record):
        key, value = record["key"], record["value"]
        headers = tuple((name, value) for name, value in record["headers"])
        if value is not None and len(value) > 100_000:
            shape = "file"
        elif key is None and value is not None and value != "":
            shape = "bare"
        elif key is None or value is None:
            shape = "null"
        else:
            shape = "keyed"
        return record["partition"], headers, shape

    def _produce_files(self, arguments, group):
        with tempfile.TemporaryDirectory(prefix="kcat-") as work:
            for number, record in enumerate(group):
                path = Path(work, f"{number:04}")
                path.write_bytes(decode(record["value"]))
                key = [] if record["key"] is None else ["-k", decode(record["key"]).decode()]
                run([*arguments, *key, str(path)])

    def op_fetch(self, topic, partition, offset, count, settings=None):
        arguments = ["-C", "-b", self.bootstrap, "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-q",
                     "-X", "auto.offset.reset=error", "-X", "check.crcs=true", "-X", "fetch.message.max.bytes=20000000",
                     *(word for name, value in (settings or {}).items() for word in ("-X", f"{name}={value}")), "-f", FORMAT]
        try:
            out, _ = run(arguments)
        except subprocess.TimeoutExpired as late:
            out = late.stdout or b""
        records = []
        while out:
            head, _, rest = out.partition(b"\n")
            at, stamp, key_length, value_length, headers = head.decode().split(" ", 4)
            key_end = max(int(key_length), 0)
            value_end = key_end + max(int(value_length), 0)
            key = None if int(key_length) < 0 else rest[:key_end]
            value = None if int(value_length) < 0 else rest[key_end:value_end]
            pairs = [pair.split("=", 1) for pair in headers.split(",") if pair]
            pairs = [[name, None if text == "NULL" else encode(text.encode())] for name, text in pairs]
            records.append({"offset": int(at), "timestamp": int(stamp), "timestamp_type": None, "key": encode(key),
                            "value": encode(value), "headers": pairs})
            out = rest[value_end + 1:]
        return records

    def op_read_as_group(self, topic, group, count, members=1, protocol="classic"):
        # Every member prints as it reads; they end, and commit, on SIGINT.
        command = ["kcat", "-b", self.bootstrap, "-u", "-X", "auto.offset.reset=earliest", "-f", "%p %o %s\\n", "-G", group, topic]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr) for _ in range(members)]
        lines = queue.Queue()

        def pump(process):
            for line in process.stdout:
                lines.put(line)

        pumps = [threading.Thread(target=pump, args=(process,)) for process in running]
        for thread in pumps:
            thread.start()
        records, deadline = [], time.monotonic() + LIMIT_S
        while len(records) < count and time.monotonic() < deadline:
            try:
                partition, offset, value = lines.get(timeout=0.2).decode().rstrip("\n").split(" ", 2)
            except queue.Empty:
                continue
            records.append({"partition": int(partition), "offset": int(offset), "value": encode(value.encode())})
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(LIMIT_S)
        for thread in pumps:
            thread.join()
        return records

    def op_transact(self, topic, id, values):
        run(["-P", "-b", self.bootstrap, "-t", topic, "-p", "0", "-X", f"transactional.id={id}"], "\n".join(values).encode())

    def op_list_offset(self, topic, partition, spec):
        spec = {"earliest": "-2", "latest": "-1"}.get(spec, spec)
        if not spec.lstrip("-").isdigit():
            raise KafkaFailure("UNSUPPORTED", spec)
        out, _ = run(["-Q", "-b", self.bootstrap, "-t", f"{topic}:{partition}:{spec}"])
        return int(re.search(r"offset (-?\d+)", out.decode()).group(1))


if __name__ == "__main__":
    version = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    version = f"kcat {re.search('Version ([0-9.]+)', version)[1]}, librdkafka {re.search('librdkafka ([0-9.]+)', version)[1]}"
    serve(Kcat(sys.argv[1]), version, {"timestamps": False, "records": "kcat", "max_timestamp": False, "group_protocols": ["classic"]})
