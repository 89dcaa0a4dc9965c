// The common script (lib/script.py) through kafkajs.
const { Kafka, CompressionTypes, logLevel, ConfigResourceTypes } = require("kafkajs");
const { LIMIT_MS, unique, pause, report, same, until } = require("./checks.cjs");

const [bootstrap, part] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "script", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry: { retries: 5 } });
const admin = kafka.admin();

async function topic(numPartitions, configEntries = []) {
  const name = unique("kafkajs");
  await admin.createTopics({ topics: [{ topic: name, numPartitions, replicationFactor: -1, configEntries }] });
  await until(async () => (await count(name)) === numPartitions, `${name} is there`);
  return name;
}

async function count(name) {
  try {
    return (await admin.fetchTopicMetadata({ topics: [name] })).topics[0].partitions.length;
  } catch (error) {
    return 0;
  }
}

async function produce(name, number, { partition, prefix = "", compression = CompressionTypes.None } = {}) {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = [...Array(number).keys()].map((n) => ({
    partition: partition ?? n % 3, key: `${prefix}k${n}`, value: `${prefix}v${n}`.repeat(10), headers: { h: `${n}` },
  }));
  await producer.send({ topic: name, messages, compression });
  await producer.disconnect();
  return messages.map(({ partition, key, value }) => [partition, key, value]);
}

// A consumer of kafkajs always is a member of a group. It reads until there are so many records.
async function read(name, number, { group = unique("group"), readUncommitted = false, seek, members = 1, limit = LIMIT_MS } = {}) {
  const got = [], shares = [];
  const consumers = [...Array(members)].map(() => kafka.consumer({ groupId: group, readUncommitted }));
  for (const consumer of consumers) {
    await consumer.connect();
    await consumer.subscribe({ topic: name, fromBeginning: true });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => shares.push((payload.memberAssignment[name] ?? []).length));
    await consumer.run({ eachMessage: async ({ partition, message }) => got.push([partition, `${message.key}`, `${message.value}`]) });
    if (seek !== undefined) consumer.seek({ topic: name, partition: 0, offset: `${seek}` });
  }
  const settled = () => members === 1 || shares.slice(-members).every((share) => share === 4 / members);
  const end = Date.now() + limit;
  while (Date.now() < end && (got.length < number || !settled())) await pause(100);
  const shared = settled();
  for (const consumer of consumers) await consumer.disconnect();
  if (!shared) throw new Error(`the members had ${shares} partitions`);
  return got;
}

async function refused(type, work) {
  let error;
  try {
    await work();
  } catch (thrown) {
    error = thrown;
  }
  const types = error && [error.type, error.cause?.type, ...(error.errors ?? []).map((one) => one.type)];
  if (!types?.includes(type)) throw new Error(`${type} was due, and came ${error ? `${error.name} ${types}` : "nothing"}`);
}

const setting = async (name, key) => (await admin.describeConfigs({
  includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name, configNames: [key] }],
})).resources[0].configEntries[0].configValue;

async function configure(name, key, value) {
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name, configEntries: [{ name: key, value }] }] });
  await until(async () => (await setting(name, key)) === value, `${key} is ${value}`);
}

const parts = {
  async admin() {
    let name;
    await report("create", async () => { name = await topic(3, [{ name: "retention.ms", value: "123456" }]); });
    await report("describe", async () => same(await setting(name, "retention.ms"), "123456", "retention.ms"));
    await report("configure", () => configure(name, "retention.ms", "7777"));
    await report("grow", async () => {
      await admin.createPartitions({ topicPartitions: [{ topic: name, count: 5 }] });
      await until(async () => (await count(name)) === 5, "five partitions");
    });
    await report("delete", async () => {
      await admin.deleteTopics({ topics: [name] });
      await until(async () => !(await admin.listTopics()).includes(name), "gone");
    });
  },

  // Without groups it cannot read, so the high watermarks tell what has arrived.
  async produce() {
    for (const codec of ["none", "gzip"])
      await report(codec, async () => {
        const name = await topic(3);
        await produce(name, 99, { compression: codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None });
        same((await admin.fetchTopicOffsets(name)).map(({ high }) => high).sort(), ["33", "33", "33"], "high watermarks");
      });
    for (const codec of ["snappy", "lz4", "zstd"]) console.log(`n/a ${codec} -- kafkajs has this codec in other packages only`);
  },

  async consume() {
    const name = await topic(1);
    const sent = await produce(name, 50, { partition: 0 });
    await pause(50);
    const moment = Date.now();
    sent.push(...await produce(name, 50, { partition: 0, prefix: "later-" }));
    await report("from a time", async () =>
      same((await admin.fetchTopicOffsetsByTimestamp(name, moment))[0].offset, "50", "the offset of that time"));
    await report("from an offset", async () => {
      const got = await read(name, 70, { seek: 30 });
      same(got.slice(-70), sent.slice(30), "what was read");
    });
    await report("to the end", async () => same((await read(name, 11, { seek: 90, limit: 5000 })).slice(-10), sent.slice(90), "records"));
  },

  async errors() {
    const name = await topic(1);
    const create = (other) => admin.createTopics({ topics: [{ topic: other, numPartitions: 1, replicationFactor: -1 }] });
    await report("topic exists", async () => same(await create(name), false, "created"));  // it tells this one by false
    await report("invalid topic", () => refused("INVALID_TOPIC_EXCEPTION", () => create("no/such")));
    await report("unknown topic", () => refused("UNKNOWN_TOPIC_OR_PARTITION", () => admin.deleteTopics({ topics: [`not-${name}`] })));
    console.log("n/a out of range -- kafkajs starts anew by itself");
    await report("too large", async () => {
      await configure(name, "max.message.bytes", "1000");
      const producer = kafka.producer();
      await producer.connect();
      await refused("MESSAGE_TOO_LARGE", () => producer.send({ topic: name, messages: [{ value: "x".repeat(5000) }] }));
      await producer.disconnect();
    });
  },

  async group() {
    const name = await topic(4), group = unique("group");
    await report("two members", async () => {
      const sent = [];
      for (const partition of [0, 1, 2, 3]) sent.push(...await produce(name, 10, { partition, prefix: `${partition}-` }));
      const got = new Map((await read(name, 40, { group, members: 2 })).map((record) => [record.join(), record]));
      same([...got.keys()].sort(), sent.map((record) => record.join()).sort(), "what was read");
    });
    await report("committed", async () => {
      const sent = await produce(name, 5, { partition: 2, prefix: "after-" });
      same(await read(name, 5, { group }), sent, "what the next member reads");
      const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [name] });
      same(partitions.sort((a, b) => a.partition - b.partition).map(({ offset }) => offset), ["10", "10", "15", "10"], "committed");
    });
    await report("list", async () => same((await admin.listGroups()).groups.some(({ groupId }) => groupId === group), true, "listed"));
  },

  async transaction() {
    const name = await topic(1);
    const producer = kafka.producer({ transactionalId: unique("t"), idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const send = async (value, end) => {
      const transaction = await producer.transaction();
      await transaction.send({ topic: name, messages: [{ value, partition: 0 }] });
      await transaction[end]();
    };
    const values = async (number, readUncommitted) => (await read(name, number, { readUncommitted })).map(([, , value]) => value);
    await report("commit", async () => {
      await send("one", "commit");
      same(await values(1, false), ["one"], "what is read");
    });
    await report("abort", async () => {
      await send("never", "abort");
      await send("two", "commit");
      same(await values(2, false), ["one", "two"], "what is read committed");
      same(await values(3, true), ["one", "never", "two"], "what is read uncommitted");
    });
    await report("offsets", async () => {
      const group = unique("group");
      const transaction = await producer.transaction();
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: name, partitions: [{ partition: 0, offset: "3" }] }] });
      await transaction.commit();
      const [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId: group, topics: [name] });
      same(offset, "3", "the committed offset");
    });
    await producer.disconnect();
  },
};

(async () => {
  await admin.connect();
  await parts[part]();
  await admin.disconnect();
  process.exit(0);
})().catch((error) => {
  console.log(`${error.name}: ${error.message}`);
  process.exit(1);
});
