"""Puts changed configurations in force: what is asked of a broker next is done by the new one."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.base.units import TopicPartition
from odradek.core.broker import Broker
from odradek.core.cluster import TopicInfo
from odradek.core.effects import Altered
from odradek.core.moment import Moment
from odradek.core.storage import log_config


def put_in_force(broker: Broker, altered: Altered, now: Moment) -> Iterator[None]:
    """Takes in the end of an AlterConfigs, then wakes who waits for it.

    Yields after each partition: then other events may be handled, but no other change.
    """
    for around in altered.in_force:
        around()
    topics = []
    for name, texts in altered.topics.items():
        known = broker.view.topics.get(name)
        if known is not None:
            topics.append(known._replace(configs=texts))
            broker.view.put(topics[-1])
        yield
    if altered.broker is not None:
        broker.configs.become(altered.broker)
        topics = list(broker.view.topics.values())
    for topic in topics:
        yield from _configure(broker, topic, now)
    broker.cleaner.look_soon()
    broker.lot.happened(altered.token, altered)


def _configure(broker: Broker, topic: TopicInfo, now: Moment) -> Iterator[None]:
    configs = broker.configs.for_topic(topic.configs)
    of_logs = log_config(configs)
    for index in range(len(topic.partitions)):
        partition = broker.partitions.get(TopicPartition(topic.name, index))
        if partition is not None:
            broker.commit(now)
            partition.configure(configs, of_logs)
        yield
