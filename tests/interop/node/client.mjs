// Drives kafkajs: one order a line on stdin, one answer a line on stdout, both JSON.  Partition 0 is meant.
//
//   node client.mjs PACKAGES ADDRESS
//
// PACKAGES is the folder in which npm installed them.  The first line says {"version": ...}.  An answer is {"ok": ...},
// or {"error": {"text", "code"}} with what the library's user would see; the code is the protocol's, or null.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { register } from "./codecs.mjs";

const [packages, address] = process.argv.slice(2);
const require = createRequire(join(resolve(packages), "any.js"));
const { Kafka, ConfigResourceTypes, logLevel } = require("kafkajs");
const codecs = await register(require);

const connectionTimeout = 20_000;
const retry = { retries: 2 };
const fetchBytes = 50 << 20;
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING, connectionTimeout, retry });

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, "base64"));
const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString("base64"));

// A header's values are one, or a list of them: names keep their order, but equal names come together.
function toMessage(record) {
  const headers = {};
  for (const { name, value } of record.headers) {
    headers[name] = name in headers ? [].concat(headers[name], [bytes(value)]) : bytes(value);
  }
  return { key: bytes(record.key), value: bytes(record.value), headers, timestamp: String(record.timestamp_ms) };
}

async function produce(order) {
  const producer = kafka.producer({ createPartitioner: () => () => 0, idempotent: order.idempotent });
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

async function consume(order) {
  let place = await placeOf(order);
  return withLeader(order.topic, async (broker) => {
    const found = [];
    while (found.length < order.count) {
      const messages = await fetch(broker, order.topic, place);
      // The first batch may begin before the place that was asked for.
      found.push(...messages.map(toRecord).filter((one) => one.offset >= place));
      place = found.length > 0 ? found.at(-1).offset + 1 : place;
    }
    return found.slice(0, order.count);
  });
}

// The public consumer reads as a member of a group only.  This goes below it, to the call with which that consumer
// reads, so that its decoding of our answers can be tested without a group.
async function withLeader(topic, work) {
  const Cluster = require("kafkajs/src/cluster");
  const { createLogger, LEVELS } = require("kafkajs/src/loggers");
  const logger = createLogger({ level: LEVELS.NOTHING, logCreator: require("kafkajs/src/loggers/console") });
  const socketFactory = require("kafkajs/src/network/socketFactory")();
  const cluster = new Cluster({ logger, socketFactory, brokers: [address], connectionTimeout, retry });
  await cluster.connect();
  try {
    await cluster.addTargetTopic(topic);
    const [{ leader }] = cluster.findTopicPartitionMetadata(topic);
    return await work(await cluster.findBroker({ nodeId: leader }));
  } finally {
    await cluster.disconnect();
  }
}

async function fetch(broker, topic, fetchOffset) {
  const partition = { partition: 0, fetchOffset: String(fetchOffset), maxBytes: fetchBytes };
  const topics = [{ topic, partitions: [partition] }];
  const { responses } = await broker.fetch({ maxWaitTime: 100, maxBytes: fetchBytes, topics });
  return responses[0].partitions[0].messages;
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

async function consumeAsMember(order) {
  const consumer = kafka.consumer({ groupId: "any" });
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: order.topic, fromBeginning: true });
    await new Promise((done, failed) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
      consumer.run({ eachMessage: async () => done() }).catch(failed);
    });
  } finally {
    await consumer.disconnect();
  }
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
    const told = await admin.describeCluster();
    const brokers = told.brokers.map((broker) => [broker.nodeId, `${broker.host}:${broker.port}`]);
    return { id: told.clusterId, controller: told.controller, brokers: Object.fromEntries(brokers) };
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
  consume_as_member: consumeAsMember,
  create_topic: createTopic,
  create_partitions: createPartitions,
  describe_topic: describeTopic,
  describe_configs: describeConfigs,
  describe_cluster: describeCluster,
  list_offsets: listOffsets,
  delete_topic: deleteTopic,
  hold,
  release,
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
