"""odradek topic: create, list, describe, configure, grow and delete topics, and elect their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    connected,
    pairs,
)
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.cli.start_offsets import Positions, offsets_at
from odradek.app.cli.topic_config_arguments import suggest_key
from odradek.app.commands.topic_compact import compact
from odradek.app.commands.topic_config_command import config
from odradek.app.commands.topic_delete import delete
from odradek.app.commands.topic_elect_leaders import elect
from odradek.app.commands.topic_segments import segments
from odradek.app.commands.topic_trim import trim
from odradek.app.terminal.command_failed import CommandFailed, report_failures
from odradek.app.terminal.output import plural, print_json, print_table
from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, INT32_MAX, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, to_text
from odradek.client.admin import admin
from odradek.client.admin.metadata_propagation import wait_until_seen
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Partition, Topic
from odradek.client.connection.client_errors import ClientError, ErrorResponse
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST

app = typer.Typer(help="Create, list, describe, change and delete topics.", no_args_is_help=True)
app.command("compact")(compact)
app.command("config")(config)
app.command("delete")(delete)
app.command("elect-leaders")(elect)
app.command("segments")(segments)
app.command("trim")(trim)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)]
Bounds = tuple[Positions, Positions]  # Start and end offsets of partitions.


@app.command("create")
def create(
    *,
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=INT32_MAX, metavar="N", show_default="the broker's num.partitions"
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, max=INT16_MAX, metavar="N", show_default="the broker's default"
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="Set a topic configuration, e.g. retention.ms=3600000; repeat for more.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", metavar="", help="Do nothing if the topic already exists.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Create topics.

    Example: odradek topic create flights --partitions 4 --config retention.ms=-1
    """
    names = [topic_name(name) for name in names]
    configs = pairs(config or (), "--config")
    with connected(bootstrap_server, command_config) as cluster:
        for name in names:
            topic = admin.NewTopic(
                name,
                admin.BROKER_DEFAULT if partitions is None else partitions,
                admin.BROKER_DEFAULT if replication_factor is None else replication_factor,
                configs,
            )
            try:
                create_topic(cluster, topic)
            except ErrorResponse as error:
                if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                typer.echo(f"{name} already exists")


def create_topic(cluster: Cluster, topic: admin.NewTopic) -> None:
    try:
        (created,) = admin.create_topics(cluster, [topic])
    except ErrorResponse as error:
        suggestion = suggest_key(topic.configs) if error.code == ErrorCode.INVALID_CONFIG else ""
        if suggestion:
            raise CommandFailed(f"{error}{suggestion}") from None
        raise
    wait_until_seen(cluster, topic.name, max(created.partitions, 1))
    count = f" ({plural(created.partitions, 'partition')})" if created.partitions >= 0 else ""
    typer.echo(f"created {topic.name}{count}")


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", metavar="", help="Also show Kafka's internal topics.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """List topics with their partitions and replicas."""
    with connected(bootstrap_server, command_config) as cluster:
        topics = [topic for topic in cluster.topics() if internal or not topic.is_internal]
    if as_json:
        print_json([summary(topic) for topic in topics])
    else:
        rows = [
            (topic.name, len(topic.partitions), replicas_of(topic), state_of(topic.partitions), id_text(topic))
            for topic in topics
        ]
        print_table(["topic", "partitions>", "replicas>", "state", "id"], rows)


def id_text(topic: Topic) -> str | None:
    """Return the topic's id, or None if the broker is too old to have ids."""
    return None if topic.id == ZERO_UUID else to_text(topic.id)


def summary(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": id_text(topic),
        "partitions": len(topic.partitions),
        "replicas": replicas_of(topic),
        "internal": topic.is_internal,
    }


def replicas_of(topic: Topic) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def state_of(partitions: Sequence[Partition]) -> str:
    """Summarize the state of the partitions for an operator."""
    leaderless = sum(partition.leader < 0 for partition in partitions)
    lagging = sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    if leaderless:
        return f"{leaderless} without leader"
    return f"{lagging} under-replicated" if lagging else "ok"


@app.command("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default="all")] = None,
    defaults: Annotated[
        bool, typer.Option("--all-configs", metavar="", help="Also show configurations at their default.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Show partitions, their leaders, replicas and offsets, and the configurations set on each topic."""
    named = [topic_name(name) for name in names or ()]
    failures: dict[TopicPartition, ClientError] = {}
    with connected(bootstrap_server, command_config) as cluster:
        requested: list[str] = [*named] or [topic.name for topic in cluster.topics() if not topic.is_internal]
        topics = admin.describe_topics(cluster, requested)
        configs = admin.describe_topic_configs(cluster, requested)
        bounds = bounds_of(cluster, topics, failures)
    described = [
        description(topic, [entry for entry in configs[topic.name] if defaults or entry.is_set_on_topic], bounds)
        for topic in topics
    ]
    if as_json:
        print_json(described)
    else:
        for one in described:
            show(one)
    return report_failures(failures.values())


def description(topic: Topic, configs: Iterable[admin.ConfigEntry], bounds: Bounds) -> dict[str, object]:
    at = {each.index: TopicPartition(TopicName(topic.name), each.index) for each in topic.partitions}
    starts, ends = bounds
    return {
        "topic": topic.name,
        "id": id_text(topic),
        "configs": {entry.name: entry.value for entry in configs},
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "start_offset": starts.get(at[partition.index]),
                "end_offset": ends.get(at[partition.index]),
            }
            for partition in topic.partitions
        ],
    }


def bounds_of(cluster: Cluster, topics: Iterable[Topic], failures: dict[TopicPartition, ClientError]) -> Bounds:
    """Return the start and end offset of each partition with a leader, and put errors into `failures`."""
    led = [
        TopicPartition(TopicName(topic.name), each.index)
        for topic in topics
        for each in topic.partitions
        if each.leader >= 0
    ]
    starts = offsets_at(cluster, led, EARLIEST, failures)
    return starts, offsets_at(cluster, list(starts), LATEST, failures)


def show(described: dict[str, object]) -> None:
    partitions, configs = described["partitions"], described["configs"]
    assert isinstance(partitions, list), "description() returns a list of partitions"
    assert isinstance(configs, dict), "description() returns a dict of configurations"
    topic_id = f"  id {described['id']}" if described["id"] else ""
    typer.echo(f"{described['topic']}  {plural(len(partitions), 'partition')}{topic_id}")
    for name, value in configs.items():
        typer.echo(f"  {name}={'(hidden)' if value is None else value}")
    rows = []
    for each in partitions:
        start, end = each["start_offset"], each["end_offset"]
        leader = "none" if each["leader"] < 0 else each["leader"]
        offsets = (start, end, None if end is None else end - start)
        rows.append((each["partition"], leader, brokers(each["replicas"]), brokers(each["isr"]), *offsets))
    print_table(["partition>", "leader>", "replicas", "in sync", "start>", "end>", "offsets>"], rows)
    typer.echo()


def brokers(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


@app.command("grow")
def grow(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=INT32_MAX, metavar="N", help="New number of partitions.")
    ],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Add partitions to a topic; records with a key may then go to another partition than before."""
    name = topic_name(name)
    with connected(bootstrap_server, command_config) as cluster:
        admin.create_partitions(cluster, {name: partitions})
        wait_until_seen(cluster, name, partitions)
    typer.echo(f"{name} has {plural(partitions, 'partition')}")
