"""Creation of new partitions' files off the loop.

A busy file system takes milliseconds for each of a thousand names.
"""

from __future__ import annotations

from contextlib import suppress

from odradek.base.errors import Refused
from odradek.base.units import TimestampMs
from odradek.base.uuids import ZERO_UUID
from odradek.core.broker.broker import Broker
from odradek.core.broker.metadata_update import Overrides
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower
from odradek.log.files.disk import DiskFailed
from odradek.log.segment.checkpoints import BadCheckpoint


def make_replicas(broker: Broker, request: BecomeLeaderOrFollower, overrides: Overrides, now: TimestampMs) -> None:
    """Create the files of new replicas in a thread, before `Broker.apply_controller_request`.

    That call retries failed creations and reports them.  This function only reads from the broker.
    """
    topics = broker.view.topics
    for name, assigned in request.partitions.items():
        if assigned.is_new and broker.id in assigned.replicas:
            known = topics.get(name.topic)
            configs = broker.configs.for_topic(overrides.get(name.topic, {}) if known is None else known.configs)
            with suppress(DiskFailed, BadCheckpoint, Refused):
                broker.storage.make(name, request.topic_ids.get(name.topic, ZERO_UUID), configs, now)
