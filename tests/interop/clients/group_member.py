"""A group member over librdkafka, as a program: ADDRESS SUBSCRIPTION KEY=VALUE ... See ../java/Member.java."""

from __future__ import annotations

import select
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_SECONDS = 0.1


def main(address: str, subscription: str, *settings: str) -> None:
    configured = dict(one.split("=", 1) for one in settings)
    consumer = Consumer({"bootstrap.servers": address, **configured})
    consumer.subscribe(subscription.split(","), on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not select.select([sys.stdin], [], [], 0)[0]:
        message = consumer.poll(POLL_SECONDS)
        if message is None or message.error():
            continue
        print("read", f"{message.topic()}-{message.partition()}", (message.value() or b"").decode(), flush=True)
        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException as error:  # The partition's next owner rereads the record.
            print("uncommitted", error, flush=True)
    consumer.close()
    print("closed", flush=True)


def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
    report("assigned", partitions)


def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
    report("revoked", partitions)


def report(what: str, partitions: list[TopicPartition]) -> None:
    print(what, *(f"{one.topic}-{one.partition}" for one in partitions), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
