"""What the core asks of the shell, as values; the end of each comes back to the broker as an event.

What only one part of the core asks for is beside that part.  Changes of topics go to the metadata tree, which may take
milliseconds or another machine, and come back as `Broker.shown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerId, TopicName
from odradek.base.uuids import Uuid
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.edits import ConfigEdit
from odradek.core.coordinators.shards import Load
from odradek.core.disks.flushes import Sync
from odradek.core.disks.log_dir_moves import Copying
from odradek.core.fetch.disk_waits import Cold, load
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.core.partition.log_starts import WriteStarts
from odradek.core.partition.lookups import Lookup
from odradek.log.files.disk import DiskFailed


class Chore(Protocol):
    """Work on files that nobody waits for: checkpoints, unlinking what was deleted."""

    def run(self) -> None:
        """Does the work.  Raises DiskFailed."""


class Chores(NamedTuple):
    """Chores for a thread; what fails is tried again by the next round or the next start."""

    chores: tuple[Chore, ...]

    def run(self) -> list[OSError]:
        failures: list[OSError] = []
        for chore in self.chores:
            try:
                chore.run()
            except DiskFailed as failed:
                failures.append(failed)
        return failures


Asker = Mapping[str, object]  # The fields of a log line about the client that asked; empty if the broker itself did.
NOBODY: Asker = MappingProxyType({})


class CreateTopics(NamedTuple):
    """Write new topics to the metadata tree; `on_sight` if they were not asked for, but for something in them."""

    token: int
    topics: tuple[TopicInfo, ...]
    asker: Asker = NOBODY
    on_sight: bool = False


class Growth(NamedTuple):
    """Partitions to append to one topic, the first of them with index `first`."""

    first: int
    added: tuple[PartitionInfo, ...]


class GrowTopics(NamedTuple):
    """Append partitions to topics of the metadata tree."""

    token: int
    topics: Mapping[TopicName, Growth]
    asker: Asker = NOBODY


class DeleteTopics(NamedTuple):
    """Take topics out of the metadata tree."""

    token: int
    topics: Mapping[TopicName, Uuid]
    asker: Asker = NOBODY


class ConfigOwner(NamedTuple):
    """Whose configuration it is: a topic's, a broker's by its id, or that of all brokers, whose name is empty."""

    is_topic: bool
    name: str


class AlterConfigs(NamedTuple):
    """Change configurations in the metadata tree, or only see whether they may be; comes back as Altered."""

    token: int
    edits: Mapping[ConfigOwner, ConfigEdit]
    asker: Asker = NOBODY
    is_dry: bool = False


class TakeProducerIds(NamedTuple):
    """Take the next block of producer ids from the metadata tree; comes back as `Broker.took_ids`.

    Ids below `at_least` are in use: the logs may have come from another cluster.
    """

    at_least: ProducerId


class Work:
    """What a request needs computed beside the loop before it can be handled on: records looked into, a huge body read.

    `run` may be called in any thread and never raises; `ended` is called on the loop afterwards.
    """

    __slots__ = ("_run", "error", "then", "value")

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.value: object = None
        self.error: Exception | None = None
        self.then: Callable[[], None] | None = None  # Called at the end; None once nobody waits for it.

    def run(self) -> None:
        try:
            self.value = self._run()
        except Exception as error:
            self.error = error

    def ended(self) -> None:
        if self.then is not None:
            self.then()


class DiskWait(Work):
    """A Work that waits for the disk until cold reads can be tried again."""

    __slots__ = ()

    def __init__(self, reads: Sequence[Cold]) -> None:
        super().__init__(partial(load, reads))


Change = CreateTopics | GrowTopics | DeleteTopics
Effect = Sync | Clean | Chores | Load | Lookup | WriteStarts | Copying | TakeProducerIds | Work | Change | AlterConfigs


class Changed(NamedTuple):
    """The end of a change: what each topic looks like now (None: gone), or why it was refused."""

    token: int
    topics: Mapping[TopicName, TopicInfo | None] = MappingProxyType({})
    refused: Mapping[TopicName, Refused] = MappingProxyType({})


def all_refused(change: Change) -> Changed:
    """Returns the end of a change that the broker could not carry out, for a reason that is no client's fault."""
    names = [topic.name for topic in change.topics] if isinstance(change, CreateTopics) else list(change.topics)
    return Changed(change.token, refused={name: Refused(ErrorCode.UNKNOWN_SERVER_ERROR) for name in names})


class Altered(NamedTuple):
    """The end of an AlterConfigs: what topics have set now, the broker's new values, and why what was refused.

    `in_force` puts in force what is not the core's: certificates, limits of listeners.
    """

    token: int
    topics: Mapping[TopicName, Mapping[str, str]] = MappingProxyType({})
    broker: BrokerConfigs | None = None
    in_force: Sequence[Callable[[], None]] = ()
    refused: Mapping[ConfigOwner, Refused] = MappingProxyType({})


def none_altered(change: AlterConfigs) -> Altered:
    """Returns the end of an AlterConfigs that could not be carried out, for a reason that is no client's fault."""
    return Altered(change.token, refused=dict.fromkeys(change.edits, Refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
