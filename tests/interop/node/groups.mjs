// Members of groups, by name, each a consumer of kafkajs.  What they read they commit at once.

import { text } from "./base64.mjs";

export function groupOrders({ kafkaOf, asAdmin }) {
  const members = new Map();

  async function join(order) {
    const consumer = kafkaOf(order.name).consumer({
      groupId: order.group,
      heartbeatInterval: order.heartbeat_ms,
      sessionTimeout: order.session_ms,
      maxWaitTimeInMs: order.fetch_wait_ms,
    });
    await consumer.connect();
    await consumer.subscribe({ topic: order.topic, fromBeginning: true });
    const member = { consumer, places: [], failure: null };
    members.set(order.name, member);
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) member.failure = payload.error;
    });
    // A commit that fails since the partition has gone to another member is the library's to handle.
    const eachMessage = async ({ topic, partition, message }) => {
      member.places.push({ partition, offset: Number(message.offset), value: text(message.value) });
      const next = String(BigInt(message.offset) + 1n);
      await consumer.commitOffsets([{ topic, partition, offset: next, metadata: order.metadata }]);
    };
    consumer.run({ autoCommit: false, eachMessage }).catch((error) => (member.failure = error));
  }

  // All but the first so many, which are known.
  function unknown(member, count) {
    if (member.failure) throw member.failure;
    return member.places.slice(count);
  }

  const places = (order) => unknown(members.get(order.name), order.count);

  async function leave(order) {
    const member = members.get(order.name);
    members.delete(order.name);
    await member.consumer.disconnect();
    return unknown(member, order.count);
  }

  const committed = (order) =>
    asAdmin(async (admin) => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId: order.group, topics: [order.topic] });
      const known = partitions.filter((one) => Number(one.offset) >= 0);
      const entries = known.map((one) => [one.partition, { offset: Number(one.offset), metadata: one.metadata }]);
      return Object.fromEntries(entries);
    });

  return { join, places, leave, committed };
}
