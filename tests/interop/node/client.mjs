// Drives kafkajs: one order a line on stdin, one answer a line on stdout, both JSON.  Partition 0 is meant.
//
//   node client.mjs PACKAGES ADDRESS
//
// PACKAGES is the folder in which npm installed them.  The first line says {"version": ...}.  An answer is {"ok": ...},
// or {"error": {"text", "code"}} with what the library's user would see; the code is the protocol's, or null.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { bytes, text } from "./base64.mjs";
import { register } from "./codecs.mjs";
import { groupOrders } from "./groups.mjs";
import { transactionOrders } from "./transactions.mjs";

const [packages, address] = process.argv.slice(2);
const require = createRequire(join(resolve(packages), "any.js"));
const { Kafka, ConfigResourceTypes, logLevel } = require("kafkajs");
const codecs = await register(require);

const connectionTimeout = 20_000;
const retry = { retries: 2 };
const fetchBytes = 50 << 20;
const fetchWait = 100;
const kafkaOf = (clientId) =>
  new Kafka({ brokers: [address], logLevel: logLevel.NOTHING, connectionTimeout, retry, clientId });
const kafka = kafkaOf("kafkajs");

// A header's values are one, or a list of them: names keep their order, but equal names come together.
function toMessage(record) {
  const headers = {};
  for (const { name, value } of record.headers) {
    headers[name] = name in headers ? [].concat(headers[name], [bytes(value)]) : bytes(value);
  }
  return { key: bytes(record.key), value: bytes(record.value), headers, timestamp: String(record.timestamp_ms) };
}

async function produce(order) {
  const producer = kafka.producer({ createPartitioner: () => () => 0, idempotent: order.idempotent ?? undefined });
  await producer.connect();
  try {
    for (const messages of portions(order.records.map(toMessage), order.record_bytes_max)) {
      await producer.send({ topic: order.topic, acks: -1, compression: codecs[order.codec], messages });
    }
  } finally {
    await producer.disconnect();
  }
}

// kafkajs knows no bound: what is sent to a partition in one call is one batch, however large.
function portions(messages, bytesMax) {
  const found = [[]];
  let size = 0;
  for (const message of messages) {
    const more = (message.key?.length ?? 0) + (message.value?.length ?? 0);
    if (size > 0 && size + more > bytesMax) {
      found.push([]);
      size = 0;
    }
    found.at(-1).push(message);
    size += more;
  }
  return found;
}

// Where to read is asked through the admin client, as a user would.
async function placeOf(order) {
  switch (order.where) {
    case "beginning":
      return listOffsets({ ...order, question: "earliest" });
    case "end":
      return listOffsets({ ...order, question: "latest" });
    case "time":
      return listOffsets({ ...order, question: "time" });
  }
  return order.at;
}

// Its consumer is a member of a group, always: of a new one here, in which it is alone and goes where it is told.
async function consume(order) {
  const { topic, count, committed } = order;
  const place = await placeOf(order);
  const settings = { groupId: randomUUID(), readUncommitted: !committed, maxWaitTimeInMs: fetchWait };
  const consumer = kafka.consumer({ ...settings, maxBytesPerPartition: fetchBytes, maxBytes: fetchBytes });
  await consumer.connect();
  try {
    await consumer.subscribe({ topic, fromBeginning: order.reset === "earliest" });
    return await new Promise((done, failed) => {
      const found = [];
      const eachMessage = async ({ message }) => {
        found.push(toRecord(message));
        if (found.length === count) done(found.slice());
      };
      consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
      consumer.on(consumer.events.GROUP_JOIN, () => consumer.seek({ topic, partition: 0, offset: String(place) }));
      consumer.run({ autoCommit: false, eachMessage }).catch(failed);
    });
  } finally {
    await consumer.disconnect();
  }
}

function toRecord(message) {
  const headers = Object.entries(message.headers).flatMap(([name, values]) =>
    [].concat(values).map((value) => ({ name, value: text(value) })),
  );
  return {
    key: text(message.key),
    value: text(message.value),
    headers,
    timestamp_ms: Number(message.timestamp),
    offset: Number(message.offset),
  };
}

async function asAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

// A topic that is there already is no error to kafkajs: it answers false.
const createTopic = (order) =>
  asAdmin(async (admin) => {
    const configEntries = Object.entries(order.configs).map(([name, value]) => ({ name, value }));
    const topic = { topic: order.topic, numPartitions: order.partitions, replicationFactor: 1, configEntries };
    return admin.createTopics({ topics: [topic] });
  });

const createPartitions = (order) =>
  asAdmin((admin) =>
    admin.createPartitions({ topicPartitions: [{ topic: order.topic, count: order.partitions }] }),
  );

const describeTopic = (order) =>
  asAdmin(async (admin) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [order.topic] });
    return Object.fromEntries(topics[0].partitions.map((one) => [one.partitionId, one.leader]));
  });

const describeConfigs = (order) =>
  asAdmin(async (admin) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: order.topic };
    const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: true });
    return Object.fromEntries(resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]));
  });

const describeCluster = () =>
  asAdmin(async (admin) => {
    const cluster = await admin.describeCluster();
    const brokers = cluster.brokers.map((broker) => [broker.nodeId, `${broker.host}:${broker.port}`]);
    return { id: cluster.clusterId, controller: cluster.controller, brokers: Object.fromEntries(brokers) };
  });

const listOffsets = (order) =>
  asAdmin(async (admin) => {
    const partitions = await (order.question === "time"
      ? admin.fetchTopicOffsetsByTimestamp(order.topic, order.at)
      : admin.fetchTopicOffsets(order.topic));
    const { low, high, offset } = partitions.find((one) => one.partition === 0);
    return Number({ earliest: low, latest: high, time: offset }[order.question]);
  });

const deleteTopic = (order) => asAdmin((admin) => admin.deleteTopics({ topics: [order.topic] }));

const held = [];

async function hold(order) {
  const connected = Array.from({ length: order.count }, async (_, number) => {
    const producer = kafka.producer({ createPartitioner: () => () => 0 });
    held.push(producer);
    await producer.connect();
    await producer.send({ topic: order.topic, acks: -1, messages: [{ value: String(number) }] });
  });
  await Promise.all(connected);
}

const release = () => Promise.all(held.splice(0).map((producer) => producer.disconnect()));

const orders = {
  produce,
  consume,
  create_topic: createTopic,
  create_partitions: createPartitions,
  describe_topic: describeTopic,
  describe_configs: describeConfigs,
  describe_cluster: describeCluster,
  list_offsets: listOffsets,
  delete_topic: deleteTopic,
  hold,
  release,
  ...groupOrders({ kafkaOf, asAdmin }),
  ...transactionOrders({ kafka }),
};

// An admin call on many topics fails with an error that holds one for each, and one that was tried again with the last.
function failure(error) {
  const cause = error.errors?.[0] ?? error;
  return { text: `${cause.name}: ${cause.message}`, code: cause.code ?? cause.cause?.code ?? null };
}

const say = (answer) => console.log(JSON.stringify(answer));

say({ version: require("kafkajs/package.json").version });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    say({ ok: (await orders[order.do](order)) ?? null });
  } catch (error) {
    say({ error: failure(error) });
  }
}

// What is still connected, after an error, would keep the process.
process.exit(0);
