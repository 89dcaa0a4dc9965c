// The common script (lib/script.py) through node-rdkafka.
const rdkafka = require("node-rdkafka");
const { LIMIT_MS, unique, pause, report, same, until } = require("./checks.cjs");

const [bootstrap, part] = process.argv.slice(2);
const copies = Math.min(3, bootstrap.split(",").length);
const common = { "metadata.broker.list": bootstrap, "log_level": 0 };
const { ERR_TOPIC_ALREADY_EXISTS, ERR_TOPIC_EXCEPTION, ERR_UNKNOWN_TOPIC_OR_PART, ERR__AUTO_OFFSET_RESET, ERR_OFFSET_OUT_OF_RANGE } =
  rdkafka.CODES.ERRORS;

// The answer of a call that wants a callback as its last argument.
const call = (object, method, ...words) => new Promise((good, bad) =>
  object[method](...words, (error, answer) => (error ? bad(Object.assign(new Error(error.message), { code: error.code })) : good(answer))));

const admin = rdkafka.AdminClient.create(common);

async function connected(client) {
  await call(client, "connect", {});
  return client;
}

async function topic(num_partitions, config = {}) {
  const name = unique("rdkafka");
  await call(admin, "createTopic", { topic: name, num_partitions, replication_factor: copies, config }, LIMIT_MS);
  await until(async () => (await count(name)) === num_partitions, `${name} is there`);
  return name;
}

async function metadata() {
  const client = await connected(new rdkafka.Producer(common, {}));
  try {
    return (await call(client, "getMetadata", { timeout: LIMIT_MS })).topics;
  } finally {
    await call(client, "disconnect");
  }
}

const count = async (name) => (await metadata()).find((one) => one.name === name)?.partitions.length ?? 0;

async function produce(name, number, { partition, prefix = "", settings = {} } = {}) {
  const producer = new rdkafka.Producer({ ...common, "dr_cb": true, "enable.idempotence": true, ...settings }, {});
  const sent = [], errors = [];
  let acknowledged = 0;
  await connected(producer);
  producer.setPollInterval(20);
  producer.on("delivery-report", (error) => (error ? errors.push(error) : acknowledged++));
  for (let n = 0; n < number; n++) {
    const record = [partition ?? n % 3, `${prefix}k${n}`, `${prefix}v${n}`.repeat(10), `${n}`];
    producer.produce(name, record[0], Buffer.from(record[2]), record[1], null, null, [{ h: record[3] }]);
    sent.push(record);
  }
  await until(() => acknowledged + errors.length === number, "all records have an answer");
  await call(producer, "disconnect");
  if (errors.length) throw Object.assign(new Error(errors[0].message), { code: errors[0].code });
  return sent;
}

const consumer = (settings = {}, start = "earliest") => connected(new rdkafka.KafkaConsumer(
  { ...common, "group.id": unique("group"), "enable.auto.commit": false, ...settings }, { "auto.offset.reset": start }));

const texts = ({ partition, key, value, headers }) => [partition, `${key}`, `${value}`, `${headers?.[0]?.h}`];

async function poll(client, number, limit = LIMIT_MS) {
  const got = [], end = Date.now() + limit;
  client.setDefaultConsumeTimeout(100);
  while (got.length < number && Date.now() < end) got.push(...(await call(client, "consume", number - got.length)));
  return got;
}

async function read(name, starts, number, { settings, start, limit } = {}) {
  const client = await consumer(settings, start);
  client.assign(starts.map((offset, partition) => ({ topic: name, partition, offset })));
  try {
    return await poll(client, number, limit);
  } finally {
    await call(client, "disconnect");
  }
}

const sorted = (records) => records.map((record) => record.join()).sort();

// Failed deliveries have no code but the words of librdkafka.
async function refused(codes, work) {
  let error;
  try {
    await work();
  } catch (thrown) {
    error = thrown;
  }
  if (!codes.some((code) => code === error?.code || code === error?.message)) throw new Error(`one of ${codes} was due, and came ${error ? `${error.code} ${error.message}` : "nothing"}`);
}

const parts = {
  async admin() {
    let name;
    await report("create", async () => { name = await topic(3, { "retention.ms": "123456" }); });
    await report("grow", async () => {
      await call(admin, "createPartitions", name, 5, LIMIT_MS);
      await until(async () => (await count(name)) === 5, "five partitions");
    });
    await report("delete", async () => {
      await call(admin, "deleteTopic", name, LIMIT_MS);
      await until(async () => (await count(name)) === 0, "gone");
    });
    for (const check of ["describe", "configure"]) console.log(`n/a ${check} -- node-rdkafka has no settings of topics`);
  },

  async produce() {
    const has = (codec) => codec !== "zstd" || rdkafka.features.includes("zstd");
    for (const codec of ["none", "gzip", "snappy", "lz4", "zstd"].filter(has))
      await report(codec, async () => {
        const name = await topic(3);
        const sent = await produce(name, 100, { settings: { "compression.codec": codec } });
        same(sorted((await read(name, [0, 0, 0], 100)).map(texts)), sorted(sent), "what was read");
      });
    if (!has("zstd")) console.log("n/a zstd -- it is compiled without zstd");
  },

  async consume() {
    const name = await topic(1);
    const sent = await produce(name, 50, { partition: 0 });
    await pause(50);
    const moment = Date.now();
    sent.push(...await produce(name, 50, { partition: 0, prefix: "later-" }));
    await report("from an offset", async () => same((await read(name, [30], 70)).map(texts), sent.slice(30), "what was read"));
    await report("from a time", async () => {
      const client = await consumer();
      const [{ offset }] = await call(client, "offsetsForTimes", [{ topic: name, partition: 0, offset: moment }], LIMIT_MS);
      await call(client, "disconnect");
      same(offset, 50, "the offset of that time");
    });
    await report("to the end", async () => same((await read(name, [90], 11, { limit: 3000 })).map(texts), sent.slice(90), "records"));
  },

  async errors() {
    const name = await topic(1);
    const create = (other) => call(admin, "createTopic", { topic: other, num_partitions: 1, replication_factor: copies }, LIMIT_MS);
    await report("topic exists", () => refused([ERR_TOPIC_ALREADY_EXISTS], () => create(name)));
    await report("invalid topic", () => refused([ERR_TOPIC_EXCEPTION], () => create("no/such")));
    await report("unknown topic", () => refused([ERR_UNKNOWN_TOPIC_OR_PART], () => call(admin, "deleteTopic", `not-${name}`, LIMIT_MS)));
    await report("out of range", () => refused([ERR__AUTO_OFFSET_RESET, ERR_OFFSET_OUT_OF_RANGE], () => read(name, [99], 1, { start: "error" })));
    await report("too large", async () => {
      const small = await topic(1, { "max.message.bytes": "1000" });
      await refused(["message size too large"], () => produce(small, 1, { partition: 0, prefix: "x".repeat(5000) }));
    });
  },

  async group() {
    const name = await topic(4), group = unique("group");
    await report("two members", async () => {
      const sent = [];
      for (const partition of [0, 1, 2, 3]) sent.push(...await produce(name, 10, { partition, prefix: `${partition}-` }));
      const members = [await consumer({ "group.id": group }), await consumer({ "group.id": group })];
      const got = new Set();
      for (const member of members) member.subscribe([name]);
      await until(async () => {
        for (const member of members) (await poll(member, 40, 200)).forEach((record) => got.add(texts(record).join()));
        return got.size === 40 && members.every((member) => member.assignments().length === 2);
      }, "two members with two partitions each, and all records");
      same([...got].sort(), sorted(sent), "what was read");
      for (const member of members) {
        member.commitSync(member.assignments().map(({ partition }) => ({ topic: name, partition, offset: 10 })));
        await call(member, "disconnect");
      }
    });
    await report("committed", async () => {
      const sent = await produce(name, 5, { partition: 2, prefix: "after-" });
      const member = await consumer({ "group.id": group });
      member.subscribe([name]);
      same((await poll(member, 5)).map(texts), sent, "what the next member reads");
      const asked = [0, 1, 2, 3].map((partition) => ({ topic: name, partition }));
      same((await call(member, "committed", asked, LIMIT_MS)).map(({ offset }) => offset), [10, 10, 10, 10], "committed");
      await call(member, "disconnect");
    });
    console.log("n/a list -- node-rdkafka cannot list groups");
  },

  async transaction() {
    const name = await topic(1);
    const producer = await connected(new rdkafka.Producer({ ...common, "transactional.id": unique("t") }, {}));
    producer.setPollInterval(20);
    const send = async (value, end) => {
      await call(producer, "beginTransaction");
      if (value) producer.produce(name, 0, Buffer.from(value));
      if (value) await call(producer, "flush", LIMIT_MS);
      await call(producer, end, LIMIT_MS);
    };
    const values = async (number, level) => (await read(name, [0], number, { settings: { "isolation.level": level } })).map(({ value }) => `${value}`);
    await report("commit", async () => {
      await call(producer, "initTransactions", LIMIT_MS);
      await send("one", "commitTransaction");
      same(await values(1, "read_committed"), ["one"], "what is read");
    });
    await report("abort", async () => {
      await send("never", "abortTransaction");
      await send("two", "commitTransaction");
      same(await values(2, "read_committed"), ["one", "two"], "what is read committed");
      same(await values(3, "read_uncommitted"), ["one", "never", "two"], "what is read uncommitted");
    });
    await report("offsets", async () => {
      const member = await consumer();
      member.assign([{ topic: name, partition: 0, offset: 0 }]);
      await call(producer, "beginTransaction");
      await call(producer, "sendOffsetsToTransaction", [{ topic: name, partition: 0, offset: 3 }], member, LIMIT_MS);
      await call(producer, "commitTransaction", LIMIT_MS);
      const [{ offset }] = await call(member, "committed", [{ topic: name, partition: 0 }], LIMIT_MS);
      await call(member, "disconnect");
      same(offset, 3, "the committed offset");
    });
    await call(producer, "disconnect");
  },
};

parts[part]().then(() => process.exit(0), (error) => {
  console.log(`${error.name}: ${error.message}`);
  process.exit(1);
});
