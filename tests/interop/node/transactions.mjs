// Transactional producers, by name.  Partition 0 is meant.

import { bytes } from "./base64.mjs";

export function transactionOrders({ kafka }) {
  const transactors = new Map();

  async function transactor(order) {
    const producer = kafka.producer({
      transactionalId: order.transactional_id,
      transactionTimeout: order.timeout_ms,
      maxInFlightRequests: 1,
      idempotent: true,
      createPartitioner: () => () => 0,
    });
    await producer.connect();
    // The library asks for its producer id with its first transaction; this is it.
    const first = await producer.transaction();
    transactors.set(order.name, { producer, first, now: null, group: order.group, topic: order.topic });
  }

  async function begin(order) {
    const one = transactors.get(order.name);
    one.now = one.first ?? (await one.producer.transaction());
    one.first = null;
  }

  async function send(order) {
    const messages = order.values.map((value) => ({ value: bytes(value) }));
    await transactors.get(order.name).now.send({ topic: order.topic, acks: -1, messages });
  }

  async function sendOffset(order) {
    const { now, group, topic } = transactors.get(order.name);
    const topics = [{ topic, partitions: [{ partition: 0, offset: String(order.at) }] }];
    await now.sendOffsets({ consumerGroupId: group, topics });
  }

  const commit = (order) => transactors.get(order.name).now.commit();

  const abort = (order) => transactors.get(order.name).now.abort();

  async function close(order) {
    const { producer } = transactors.get(order.name);
    transactors.delete(order.name);
    await producer.disconnect();
  }

  return { transactor, begin, send, send_offset: sendOffset, commit, abort, close };
}
