"""The copier over librdkafka."""

from __future__ import annotations

import os
import sys
import time
import traceback

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from workload.settings import CALL_SECONDS_MAX, Clients
from workload.transactors import bounded

RECORDS_MAX = 25
PAUSE_SECONDS = 0.03  # With the transaction open, so that most kills happen there.


def main(arguments: list[str]) -> None:
    address, group, protocol, transactional_id, source, sink = arguments
    clients = Clients(address)
    consumer = Consumer(clients.member(group, "classic" if protocol == "classic" else "consumer"))
    producer = Producer(clients.producer(transactional_id))
    producer.init_transactions(4 * CALL_SECONDS_MAX)
    rebalanced: list[TopicPartition] = []

    def moved(_: Consumer, partitions: list[TopicPartition]) -> None:
        rebalanced.extend(partitions)

    consumer.subscribe([source], on_revoke=moved, on_lost=moved)
    while True:
        rebalanced.clear()
        records = some(consumer)
        if not records:
            continue
        producer.begin_transaction()
        try:
            if rebalanced:
                raise KafkaException("rebalanced")
            copy(producer, consumer, records, sink)
            producer.commit_transaction(2 * CALL_SECONDS_MAX)
        except KafkaException as error:
            print(f"{transactional_id}: {error}", file=sys.stderr, flush=True)
            producer.abort_transaction(2 * CALL_SECONDS_MAX)  # If it can't, another takes over.
            rewind(consumer)


def some(consumer: Consumer) -> list[Message]:
    records: list[Message] = []
    while len(records) < RECORDS_MAX:
        message = consumer.poll(0.0 if records else 0.2)
        if message is None:
            break
        if message.error() is None:
            records.append(message)
    return records


def copy(producer: Producer, consumer: Consumer, records: list[Message], sink: str) -> None:
    offsets: dict[int, TopicPartition] = {}
    for record in records:
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        producer.produce(sink, record.value(), partition=partition)
        offsets[partition] = TopicPartition(topic, partition, offset + 1)
    metadata = consumer.consumer_group_metadata()
    bounded(lambda seconds: producer.send_offsets_to_transaction([*offsets.values()], metadata, seconds))
    time.sleep(PAUSE_SECONDS)


def rewind(consumer: Consumer) -> None:
    for one in consumer.committed(consumer.assignment(), 2 * CALL_SECONDS_MAX):
        if one.error is not None:
            raise KafkaException(one.error)
        consumer.seek(TopicPartition(one.topic, one.partition, max(0, one.offset)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # At once: deleting a consumer closes it, which may take forever after a call that hung.
