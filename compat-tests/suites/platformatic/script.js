// The common script (lib/script.py) through @platformatic/kafka.
import { Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";
import checks from "./checks.cjs";

const { LIMIT_MS, unique, pause, report, same, until } = checks;
const [bootstrap, part] = process.argv.slice(2);
const common = { clientId: "script", bootstrapBrokers: bootstrap.split(","), retries: 5 };
const admin = new Admin(common);
const copies = Math.min(3, common.bootstrapBrokers.length);

async function topic(partitions, configs = []) {
  const name = unique("platformatic");
  await admin.createTopics({ topics: [name], partitions, replicas: copies, configs });
  await until(async () => (await count(name)) === partitions, `${name} is there`);
  return name;
}

async function count(name) {
  try {
    return (await admin.metadata({ topics: [name], forceUpdate: true })).topics.get(name).partitionsCount;
  } catch (error) {
    return 0;
  }
}

async function produce(name, number, { partition, prefix = "", compression } = {}) {
  const producer = new Producer({ ...common, idempotent: true, serializers: stringSerializers, compression });
  const messages = [...Array(number).keys()].map((n) => ({
    topic: name, partition: partition ?? n % 3, key: `${prefix}k${n}`, value: `${prefix}v${n}`.repeat(10), headers: new Map([["h", `${n}`]]),
  }));
  await producer.send({ messages });
  await producer.close();
  return messages.map(({ partition, key, value }) => [partition, key, value, messages.find((m) => m.key === key).headers.get("h")]);
}

const consumer = (groupId = unique("group"), more = {}) =>
  new Consumer({ ...common, groupId, deserializers: stringDeserializers, maxWaitTime: 500, ...more });

const text = ({ partition, key, value, headers }) => [partition, key, value, headers?.get("h")];

async function gather(stream, number, limit = LIMIT_MS) {
  const got = [];
  stream.on("data", (message) => got.push(message));
  const end = Date.now() + limit;
  let failure;
  stream.on("error", (error) => { failure = error; });
  while (got.length < number && Date.now() < end && !failure) await pause(50);
  if (failure) throw failure;
  return got;
}

// Reads from an offset in each partition, as a member of a group of its own.
async function read(name, starts, number, { isolationLevel = FetchIsolationLevels.READ_COMMITTED, limit } = {}) {
  const client = consumer();
  const offsets = starts.map((offset, partition) => ({ topic: name, partition, offset: BigInt(offset) }));
  const stream = await client.consume({ topics: [name], mode: "manual", offsets, autocommit: false, isolationLevel });
  try {
    return await gather(stream, number, limit);
  } finally {
    await client.close(true);
  }
}

const sorted = (records) => records.map((record) => record.join()).sort();

async function refused(code, work) {
  let error;
  try {
    await work();
  } catch (thrown) {
    error = thrown;
  }
  if (!error?.findBy?.("apiId", code)) throw new Error(`${code} was due, and came ${error ? `${error.name} ${error.message}` : "nothing"}`);
}

const setting = async (name, key) => (await admin.describeConfigs({
  resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: name, configurationKeys: [key] }],
}))[0].configs[0].value;

async function configure(name, key, value) {
  const configs = [{ name: key, configOperation: 0, value }];
  await admin.incrementalAlterConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: name, configs }] });
  await until(async () => (await setting(name, key)) === value, `${key} is ${value}`);
}

async function committed(group, name) {
  const [{ topics }] = await admin.listConsumerGroupOffsets({ groups: [group] });
  const { partitions } = topics.find((one) => one.name === name);
  return partitions.sort((a, b) => a.partitionIndex - b.partitionIndex).map(({ committedOffset }) => Number(committedOffset));
}

const parts = {
  async admin() {
    let name;
    await report("create", async () => { name = await topic(3, [{ name: "retention.ms", value: "123456" }]); });
    await report("describe", async () => same(await setting(name, "retention.ms"), "123456", "retention.ms"));
    await report("configure", () => configure(name, "retention.ms", "7777"));
    await report("grow", async () => {
      await admin.createPartitions({ topics: [{ name, count: 5, assignments: null }] });
      await until(async () => (await count(name)) === 5, "five partitions");
    });
    await report("delete", async () => {
      await admin.deleteTopics({ topics: [name] });
      await until(async () => !(await admin.listTopics()).includes(name), "gone");
    });
  },

  async produce() {
    for (const codec of ["none", "gzip", "snappy", "lz4", "zstd"])
      await report(codec, async () => {
        const name = await topic(3);
        const sent = await produce(name, 99, { compression: codec });
        same(sorted((await read(name, [0, 0, 0], 99)).map(text)), sorted(sent), "what was read");
      });
  },

  async consume() {
    const name = await topic(1);
    const sent = await produce(name, 50, { partition: 0 });
    await pause(50);
    const moment = Date.now();
    sent.push(...await produce(name, 50, { partition: 0, prefix: "later-" }));
    await report("from an offset", async () => same((await read(name, [30], 70)).map(text), sent.slice(30), "what was read"));
    await report("from a time", async () => {
      const [{ partitions }] = await admin.listOffsets({ topics: [{ name, partitions: [{ partitionIndex: 0, timestamp: BigInt(moment) }] }] });
      same(Number(partitions[0].offset), 50, "the offset of that time");
    });
    await report("to the end", async () => same((await read(name, [90], 11, { limit: 3000 })).map(text), sent.slice(90), "records"));
  },

  async errors() {
    const name = await topic(1);
    const create = (other) => admin.createTopics({ topics: [other], partitions: 1, replicas: copies });
    await report("topic exists", () => refused("TOPIC_ALREADY_EXISTS", () => create(name)));
    await report("invalid topic", () => refused("INVALID_TOPIC_EXCEPTION", () => create("no/such")));
    await report("unknown topic", () => refused("UNKNOWN_TOPIC_OR_PARTITION", () => admin.deleteTopics({ topics: [`not-${name}`] })));
    console.log("n/a out of range -- @platformatic/kafka starts anew by itself");
    await report("too large", async () => {
      await configure(name, "max.message.bytes", "1000");
      await refused("MESSAGE_TOO_LARGE", () => produce(name, 1, { partition: 0, prefix: "x".repeat(5000) }));
    });
  },

  async group() {
    for (const groupProtocol of ["classic", "consumer"]) await byProtocol(groupProtocol);
  },

  async transaction() {
    const name = await topic(1);
    const producer = new Producer({ ...common, idempotent: true, transactionalId: unique("t"), serializers: stringSerializers });
    const send = async (value, end) => {
      const transaction = await producer.beginTransaction();
      await transaction.send({ messages: [{ topic: name, partition: 0, value }] });
      await transaction[end]();
    };
    const values = async (number, isolationLevel) => (await read(name, [0], number, { isolationLevel })).map(({ value }) => value);
    await report("commit", async () => {
      await send("one", "commit");
      same(await values(1, FetchIsolationLevels.READ_COMMITTED), ["one"], "what is read");
    });
    await report("abort", async () => {
      await send("never", "abort");
      await send("two", "commit");
      same(await values(2, FetchIsolationLevels.READ_COMMITTED), ["one", "two"], "what is read committed");
      same(await values(3, FetchIsolationLevels.READ_UNCOMMITTED), ["one", "never", "two"], "what is read uncommitted");
    });
    await report("offsets", async () => {
      const group = unique("group"), member = consumer(group);
      const stream = await member.consume({ topics: [name], mode: "earliest", autocommit: false });
      const [, second] = await gather(stream, 2);
      const transaction = await producer.beginTransaction();
      await transaction.addConsumer(member);
      await transaction.addOffset(second);
      await transaction.commit();
      await member.close(true);
      same(await committed(group, name), [Number(second.offset) + 1], "the committed offset");
    });
    await producer.close();
  },
};

async function byProtocol(groupProtocol) {
  const name = await topic(4), group = unique("group");
  await report(`two members, ${groupProtocol} protocol`, async () => {
    const sent = [];
    for (const partition of [0, 1, 2, 3]) sent.push(...await produce(name, 10, { partition, prefix: `${partition}-` }));
    const members = [consumer(group, { groupProtocol }), consumer(group, { groupProtocol })], got = new Set();
    for (const member of members) {
      const stream = await member.consume({ topics: [name], mode: "committed", fallbackMode: "earliest", autocommit: true });
      stream.on("data", (message) => got.add(text(message).join()));
    }
    const shares = () => members.map(({ assignments }) => assignments?.find((one) => one.topic === name)?.partitions.length);
    await until(() => got.size === 40 && shares().every((share) => share === 2), "two members with two partitions each, and all records");
    same([...got].sort(), sorted(sent), "what was read");
    await until(async () => JSON.stringify(await committed(group, name)) === "[10,10,10,10]", "all of it is committed");
    for (const member of members) await member.close(true);
  });
  await report(`committed, ${groupProtocol} protocol`, async () => {
    const sent = await produce(name, 5, { partition: 2, prefix: "after-" });
    const member = consumer(group, { groupProtocol });
    const stream = await member.consume({ topics: [name], mode: "committed", fallbackMode: "fail", autocommit: false });
    same((await gather(stream, 5)).map(text), sent, "what the next member reads");
    await member.close(true);
  });
  await report(`list, ${groupProtocol} protocol`, async () => same((await admin.listGroups({ types: [groupProtocol] })).has(group), true, "listed"));
}

parts[part]().then(() => process.exit(0), (error) => {
  console.log(`${error.name}: ${error.message}`);
  process.exit(1);
});
