"""Locations of a topic's logs on this machine, with facts that only the brokers know.

A local folder of that name may belong to another broker: its meta.properties must name the cluster and the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.app.inspect.segment_fate import Bounds, Retention
from odradek.app.inspect.verify import ReadOnlyDisk
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.base.errors import Refused
from odradek.base.units import TopicPartition
from odradek.client.admin import admin
from odradek.client.admin.log_dir_description import Replica, replicas_of
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import group_by_leader
from odradek.client.connection.client_errors import ClientError, KafkaUnavailable
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST, list_offsets
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.log.files.log_file_names import LOG_STARTS, parse_partition
from odradek.log.files.meta_properties import WrongDirectory, identity
from odradek.log.segment.checkpoints import BadCheckpoint, read_offsets


class TopicLog(NamedTuple):
    """Log of one partition: its folder, or the reason why it cannot be read here."""

    partition: TopicPartition
    directory: Path | None
    why_not: str
    bounds: Bounds


def locate_logs(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[TopicLog]:
    """Request the locations of the logs from the leaders of the partitions."""
    failures: dict[TopicPartition, ClientError] = {}
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), failures=failures)
    ends = list_offsets(cluster, dict.fromkeys(starts, LATEST), failures=failures)
    cluster_id = admin.describe_cluster(cluster).cluster_id
    found: dict[TopicPartition, TopicLog] = {}
    for broker, led in group_by_leader(cluster, ends, failures).items():
        try:
            replicas = replicas_of(cluster, broker, led)
        except KafkaUnavailable as error:
            failures |= dict.fromkeys(led, error)
            continue
        for each in led:
            bounds = Bounds(starts[each].offset, ends[each].offset)
            found[each] = _topic_log(each, broker, replicas.get(each), bounds, cluster_id)
    unknown = Bounds(0, None)
    return [found.get(each) or TopicLog(each, None, _sentence(each, failures[each]), unknown) for each in partitions]


def _sentence(partition: TopicPartition, failure: ClientError) -> str:
    text = str(failure)
    return text if text.startswith(f"{partition}:") else f"{partition}: {text}"


def _topic_log(
    partition: TopicPartition, broker: int, replica: Replica | None, bounds: Bounds, cluster_id: str | None
) -> TopicLog:
    if replica is None:
        return TopicLog(partition, None, f"broker {broker} did not return the directory of {partition}", bounds)
    folder = Path(replica.log_dir)
    why_not = why_not_here(folder, partition, broker, cluster_id)
    return TopicLog(partition, None if why_not else folder / str(partition), why_not, bounds)


def why_not_here(folder: Path, partition: TopicPartition, broker: int, cluster_id: str | None) -> str:
    """Return why the files of a log cannot be read on this machine, or "" if they can."""
    try:
        known_broker, known_cluster = identity(ReadOnlyDisk(), str(folder))
        is_there = (folder / str(partition)).is_dir()
    except (OSError, WrongDirectory):
        known_broker, known_cluster, is_there = None, None, False
    if is_there and known_broker == broker and cluster_id in (None, known_cluster):
        return ""
    where = f"{partition} is in {folder} of broker {broker}, which is on another machine or not readable"
    return f"{where}: run this command there"


def logs_in_directory(folder: Path, topic: str, partitions: Sequence[int]) -> list[TopicLog]:
    """Return the logs of a topic in a log directory, without a broker. Raise CommandFailed if none."""
    try:
        starts = read_offsets(ReadOnlyDisk(), f"{folder}/{LOG_STARTS}")
        folders = [(parse_partition(path.name), path) for path in folder.iterdir() if path.is_dir()]
    except BadCheckpoint as bad:
        raise CommandFailed(str(bad)) from None
    found = []
    for each, path in folders:
        if each is not None and each.topic == topic and (not partitions or each.partition in partitions):
            found.append(TopicLog(each, path, "", Bounds(starts.get(each, 0), None)))
    if not found:
        raise CommandFailed(f"{folder} has no log of {topic}: use a data directory as in log.dirs")
    return sorted(found)


def retention_of(configs: Mapping[str, str | None]) -> Retention:
    policy = {part.strip() for part in (configs["cleanup.policy"] or "").split(",")}
    return Retention(
        int(configs["retention.ms"] or 0),
        int(configs["retention.bytes"] or 0),
        deletes="delete" in policy,
        compacts="compact" in policy,
    )


def request_retention(cluster: Cluster, topic: str) -> Retention:
    """Request the topic's configuration, which includes the broker's defaults."""
    (entries,) = admin.describe_topic_configs(cluster, [topic]).values()
    return retention_of({entry.name: entry.value for entry in entries})


def retention_from_overrides(overrides: Mapping[str, str]) -> Retention:
    """Return Kafka's defaults overridden by these topic configurations. Raise CommandFailed."""
    broker = BrokerConfigs.parse({})
    try:
        broker.check_topic(overrides)
    except Refused as refused:
        raise CommandFailed(f"--config: {refused.detail}", USAGE_ERROR) from None
    configs = broker.for_topic(overrides)
    policy = configs.cleanup_policy
    return Retention(configs.retention_ms, configs.retention_bytes, "delete" in policy, "compact" in policy)
