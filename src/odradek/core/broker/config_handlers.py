"""Application of changed configurations: later requests are handled with the new ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from odradek.base.units import TopicName
from odradek.core.broker import config_log_lines as config_log
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import NO_CLIENT, Altered, ConfigOwner
from odradek.core.configs.topic_configs import invalid_overrides_message
from odradek.core.kernel.moment import Moment

_LOG = logging.getLogger(__name__)

UNCLEAN = "unclean.leader.election.enable"


def apply_altered_configs(broker: Broker, altered: Altered, now: Moment) -> Iterator[None]:
    """Complete an AlterConfigs, then wake the requests that wait for it.

    Yields after each partition, where other events may be handled, but no other change.
    """
    for apply in altered.appliers:
        apply()
    topics = []
    for name, texts in altered.topics.items():
        known = broker.view.topics.get(name)
        if known is not None:
            topics.append(known._replace(configs=texts))
            broker.view.put(topics[-1])
        _note_unclean(broker, name, texts)
        yield
    if altered.broker is not None:
        was_unclean = broker.configs.bool(UNCLEAN)
        broker.configs.replace_values(altered.broker)
        if broker.configs.bool(UNCLEAN) and not was_unclean:
            broker.unclean_enabled[None] = None
        yield from broker.fetchers.resize(altered.broker.int("num.replica.fetchers"), now)
        topics = list(broker.view.topics.values())
    for topic in topics:
        yield from broker.configure(topic, now)
        yield
    broker.cleaner.search_soon()
    broker.purgatory.happened(altered.token, altered)


def _note_unclean(broker: Broker, name: TopicName, texts: Mapping[str, str]) -> None:
    """Record a topic whose unclean elections were enabled: the controller may have waited for that."""
    if UNCLEAN in texts and broker.configs.for_topic(texts).unclean_leader_election_enable:
        broker.unclean_enabled[name] = None


def apply_remote_configs(broker: Broker, altered: Altered, now: Moment) -> Iterator[None]:
    """Apply and log the changes of other brokers that are not applied here yet.

    Yields like `apply_altered_configs`.
    """
    changed: dict[TopicName, Mapping[str, str]] = {}
    unannounced: dict[TopicName, Mapping[str, str]] = {}
    for name, texts in altered.topics.items():
        known = broker.view.topics.get(name)
        if known is None:
            unannounced[name] = texts
        elif known.configs != texts:
            config_log.log_config_change(ConfigOwner(is_topic=True, name=name), known.configs, texts, NO_CLIENT)
            changed[name] = texts
            invalid = invalid_overrides_message(name, texts)
            if invalid is not None:
                _LOG.error("%s", invalid)
        yield
    if unannounced:
        yield from _configure_unannounced(broker, unannounced, now)
    if changed or altered.broker is not None:
        yield from apply_altered_configs(broker, altered._replace(topics=changed), now)


def _configure_unannounced(
    broker: Broker, unannounced: Mapping[TopicName, Mapping[str, str]], now: Moment
) -> Iterator[None]:
    """Configure partitions of topics that a controller has created but not announced yet."""
    for name, overrides in unannounced.items():
        _note_unclean(broker, name, overrides)
    for partition_id, partition in list(broker.partitions.items()):
        texts = unannounced.get(partition_id.topic)
        if texts is not None:
            broker.configure_replica(partition, broker.configs.for_topic(texts), now)
            yield
