"""Client driver: Apache Kafka's own command-line tools (the classes behind kafka-topics.sh and its siblings).

Started as `tools.py JAVA... -- BOOTSTRAP`; each operation is one run of a tool in a JVM of its own. The console producer takes no
partition and no timestamp, so its records go where a topic of one partition lets them go.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from protocol import KafkaFailure, decode, encode, serve

LIMIT_S = 45
NULL = "<null>"
ERRORS = {
    "TopicExists": "TOPIC_ALREADY_EXISTS",
    "UnknownTopicOrPartition": "UNKNOWN_TOPIC_OR_PARTITION",
    "InvalidTopic": "INVALID_TOPIC_EXCEPTION",
    "InvalidPartitions": "INVALID_PARTITIONS",
    "InvalidReplicationFactor": "INVALID_REPLICATION_FACTOR",
    "InvalidConfiguration": "INVALID_CONFIG",
    "Config": "INVALID_CONFIG",  # found by the tool itself
    "RecordTooLarge": "MESSAGE_TOO_LARGE",
    "OffsetOutOfRange": "OFFSET_OUT_OF_RANGE",
    "GroupIdNotFound": "GROUP_ID_NOT_FOUND",
    "GroupNotEmpty": "NON_EMPTY_GROUP",
    "TransactionalIdNotFound": "TRANSACTIONAL_ID_NOT_FOUND",
}
MAINS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class Tools:
    def __init__(self, java, bootstrap):
        self.java, self.bootstrap = java, bootstrap

    def run(self, tool, *arguments, data=b""):
        command = [*self.java, MAINS[tool], "--bootstrap-server", self.bootstrap, *map(str, arguments)]
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)
        both = (done.stdout + done.stderr).decode(errors="replace")
        sys.stderr.write(f"$ {tool} {' '.join(map(str, arguments))} -> {done.returncode}\n{done.stderr.decode(errors='replace')}")
        thrown = re.search(r"\b(\w{1,60})Exception\b", re.sub(r"\b(Execution|Completion|TopicCommand\w{0,60})Exception", "", both))
        if thrown and (done.returncode != 0 or tool in ("producer", "delete-records", "groups")):
            raise KafkaFailure(ERRORS.get(thrown.group(1), thrown.group(1)), both[-500:])
        if done.returncode != 0:
            raise KafkaFailure("TOOL", both[-500:])
        return done.stdout

    # Topics and settings

    def op_create_topic(self, topic, partitions, configs=None, replication=1):
        settings = [word for name, value in (configs or {}).items() for word in ("--config", f"{name}={value}")]
        self.run("topics", "--create", "--topic", topic, "--partitions", partitions, "--replication-factor", replication, *settings)

    def op_create_partitions(self, topic, total):
        self.run("topics", "--alter", "--topic", topic, "--partitions", total)

    def op_delete_topic(self, topic):
        self.run("topics", "--delete", "--topic", topic)

    def op_list_topics(self):
        return sorted(self.run("topics", "--list").decode().split())

    def op_describe_topic(self, topic):
        try:
            out = self.run("topics", "--describe", "--topic", topic).decode()
        except KafkaFailure as failure:
            if "does not exist" in str(failure):
                raise KafkaFailure("UNKNOWN_TOPIC_OR_PARTITION", topic) from None
            raise
        rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", out)
        numbers = lambda text: [int(number) for number in text.split(",")]
        return [{"id": int(p), "leader": int(leader), "replicas": numbers(replicas), "isr": numbers(isr)}
                for p, leader, replicas, isr in rows]

    def op_alter_config(self, topic, set, delete=()):
        entity = ["--alter", "--entity-type", "topics", "--entity-name", topic]
        change = []
        if set:
            change += ["--add-config", ",".join(f"{name}=[{value}]" if "," in value else f"{name}={value}" for name, value in set.items())]
        if delete:
            change += ["--delete-config", ",".join(delete)]
        self.run("configs", *entity, *change)

    def op_describe_config(self, topic):
        out = self.run("configs", "--describe", "--entity-type", "topics", "--entity-name", topic, "--all").decode()
        return dict(re.findall(r"^  (\S+?)=(.*?) sensitive=", out, re.M))

    def op_log_dirs(self):
        out = self.run("log-dirs", "--describe").decode()
        described = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
        return {p["partition"]: p["size"] for broker in described["brokers"] for d in broker["logDirs"] for p in d["partitions"]}

    # Records

    def op_produce(self, topic, records, compression="none", acks="all", idempotent=True, settings=None):
        lines = []
        for record in records:
            headers = ",".join(f"{name}:{NULL if value is None else decode(value).decode()}" for name, value in record["headers"])
            text = lambda field: NULL if record[field] is None else decode(record[field]).decode()
            lines.append(f"{headers or NULL}\t{text('key')}\t{text('value')}\n")
        reader = ["parse.key=true", "parse.headers=true", f"null.marker={NULL}"]
        client = [f"enable.idempotence={str(idempotent).lower()}", f"acks={acks}", f"compression.type={compression}",
                  "max.request.size=20000000", "linger.ms=5", *(f"{name}={value}" for name, value in (settings or {}).items())]
        arguments = [word for one in reader for word in ("--reader-property", one)]
        arguments += [word for one in client for word in ("--command-property", one)]
        arguments += ["--compression-codec", compression]
        self.run("producer", "--topic", topic, *arguments, data="".join(lines).encode())
        return None

    def op_fetch(self, topic, partition, offset, count, settings=None):
        formats = ["print.timestamp=true", "print.partition=true", "print.offset=true", "print.headers=true", "print.key=true",
                   f"null.literal={NULL}"]
        settings = dict(settings or {})
        isolation = settings.pop("isolation.level", "read_uncommitted")  # the tool has an option of its own for it
        client = ["auto.offset.reset=none", *(f"{name}={value}" for name, value in settings.items())]
        arguments = ["--isolation-level", isolation]
        arguments += [word for one in formats for word in ("--formatter-property", one)]
        arguments += [word for one in client for word in ("--command-property", one)]
        out = self.run("consumer", "--topic", topic, "--partition", partition, "--offset", offset, "--max-messages", count,
                       "--timeout-ms", 30000, *arguments).decode()
        return [self._record(line) for line in out.split("\n") if line]

    def _record(self, line):
        stamp, _, at, headers, key, value = line.split("\t", 5)
        kind, _, stamp = stamp.partition(":")
        text = lambda word: None if word == NULL else encode(word.encode())
        pairs = [] if headers in ("NO_HEADERS", "") else [pair.split(":", 1) for pair in headers.split(",")]
        return {"offset": int(at.partition(":")[2]), "timestamp": int(stamp),
                "timestamp_type": {"CreateTime": "create", "LogAppendTime": "append"}.get(kind, "none"),
                "key": text(key), "value": text(value), "headers": [[name, text(word)] for name, word in pairs]}

    # Groups

    def op_read_as_group(self, topic, group, count, members=1, protocol="classic"):
        # One member after the other: the first ends when it has read its share.
        records = []
        for share in [count // members] * (members - 1) + [count - count // members * (members - 1)]:
            out = self.run("consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", share,
                           "--timeout-ms", 30000, "--command-property", f"group.protocol={protocol}",
                           "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true").decode()
            for line in filter(None, out.split("\n")):
                partition, offset, value = line.split("\t", 2)
                records.append({"partition": int(partition.partition(":")[2]), "offset": int(offset.partition(":")[2]),
                                "value": encode(value.encode())})
        return records

    def op_committed(self, group, topic):
        out = self.run("groups", "--describe", "--group", group, "--offsets").decode()
        rows = re.findall(rf"^{re.escape(group)}\s+{re.escape(topic)}\s+(\d+)\s+(\d+)", out, re.M)
        return {partition: int(offset) for partition, offset in rows}

    def op_describe_group(self, group):
        out = self.run("groups", "--describe", "--group", group, "--state").decode()
        state, members = re.search(rf"^{re.escape(group)}\s.*?(\w+)\s+(\d+)\s*$", out, re.M).groups()
        return {"state": state.upper(), "members": int(members)}

    def op_list_groups(self):
        return sorted(self.run("groups", "--list").decode().split())

    def op_delete_group(self, group):
        self.run("groups", "--delete", "--group", group)

    def op_reset_group(self, group, topic, to):
        self.run("groups", "--reset-offsets", "--group", group, "--topic", topic, *to, "--execute")

    # Transactions

    def _table(self, *arguments):
        """What kafka-transactions prints, as a list of rows by the names of the columns."""
        head, *rows = self.run("transactions", *arguments).decode().splitlines()
        return [dict(zip(head.split(), row.split())) for row in rows if row.strip()]

    def op_list_transactions(self):
        return {row["TransactionalId"]: row["TransactionState"].upper() for row in self._table("list")}

    def op_describe_transaction(self, id):
        try:
            (row,) = self._table("describe", "--transactional-id", id)
        except KafkaFailure as failure:
            if "the ID could not be found" in str(failure):
                raise KafkaFailure("TRANSACTIONAL_ID_NOT_FOUND", id) from None
            raise
        return {"state": row["TransactionState"].upper(), "partitions": row["TopicPartitions"].split(",")}

    def op_describe_producers(self, topic, partition):
        starts = [row["CurrentTransactionStartOffset"] for row in self._table("describe-producers", "--topic", topic, "--partition", partition)]
        return [None if start == "None" else int(start) for start in starts]

    def op_abort_transaction(self, topic, partition, start):
        self.run("transactions", "abort", "--topic", topic, "--partition", partition, "--start-offset", start)

    # Offsets

    def op_list_offset(self, topic, partition, spec):
        spec = {"max_timestamp": "max-timestamp"}.get(spec, spec)
        out = self.run("get-offsets", "--topic-partitions", f"{topic}:{partition}", "--time", spec).decode()
        found = re.search(rf"^{re.escape(topic)}:{partition}:(-?\d*)$", out, re.M)
        return -1 if found is None or not found.group(1) else int(found.group(1))

    def op_delete_records(self, topic, partition, before):
        with tempfile.TemporaryDirectory(prefix="tools-") as work:
            path = Path(work, "offsets.json")
            path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition, "offset": before}]}))
            out = self.run("delete-records", "--offset-json-file", path).decode()
        return int(re.search(r"low_watermark: (\d+)", out).group(1))


if __name__ == "__main__":
    *java, separator, bootstrap = sys.argv[1:]
    assert separator == "--"
    features = {"timestamps": False, "records": "text", "partitions": False, "slow": True}
    serve(Tools(java, bootstrap), "Apache Kafka 4.4.0's command-line tools", features)
