"""Controller requests to this broker: applied one after the other, from the newest controller only.

LeaderAndIsr, StopReplica ──> replicas          UpdateMetadata ──> the view; groups learn of deleted topics
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.metadata_update import Overrides, is_known, update_view
from odradek.core.broker.replicas import Errors, Replicas
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.moment import Moment


class ControlRequestResult(NamedTuple):
    """Result of one request: the partitions for which it failed, and deleted topics."""

    errors: Errors
    deleted: list[TopicName]


class ControlRequestHandler:
    """Handler of the controller's requests to this broker."""

    def __init__(self, view: ClusterView, replicas: Replicas, configs: BrokerConfigs) -> None:
        self._view = view
        self._replicas = replicas
        self._configs = configs
        self.broker_epoch: int = NO_EPOCH  # Of our registration; without one, every request is applied.
        self.controller_epoch = 0  # The greatest known one.
        self._is_applying = False

    def check(self, sent: ControlRequest) -> None:
        """Raise Refused for a request of a deposed controller, or to an earlier registration of this broker.

        A broker epoch above ours belongs to a registration whose result has not arrived here yet, and controllers
        before Kafka 2.2 send none.  If both epochs are stale, the error names the broker epoch, as in Apache Kafka.
        """
        if NO_EPOCH != sent.broker_epoch < self.broker_epoch:
            text = f"broker epoch {sent.broker_epoch} is stale: the current broker epoch is {self.broker_epoch}"
            raise Refused(ErrorCode.STALE_BROKER_EPOCH, text)
        if sent.controller_epoch < self.controller_epoch:
            text = f"controller epoch {sent.controller_epoch} is stale: the latest known is {self.controller_epoch}"
            raise Refused(ErrorCode.STALE_CONTROLLER_EPOCH, text)

    def names(self, sent: ControlRequest) -> list[TopicName]:
        """Return the topics whose overrides are needed for `apply`: those unknown to this broker."""
        return [name for name, topic_id in _topics(sent).items() if not is_known(self._view, name, topic_id)]

    def apply(
        self, sent: ControlRequest, overrides: Overrides, now: Moment
    ) -> Generator[None, None, ControlRequestResult]:
        """Apply a request in slices; no other controller request may be applied in between.

        `overrides` are those of the topics from `names`.  Raises Refused like `check`, before the first slice.
        """
        assert not self._is_applying, "controller requests are applied one at a time"
        self.check(sent)
        self.controller_epoch = sent.controller_epoch
        self._is_applying = True
        try:
            return (yield from self._apply(sent, overrides, now))
        finally:
            assert self._is_applying
            self._is_applying = False

    def _apply(
        self, sent: ControlRequest, overrides: Overrides, now: Moment
    ) -> Generator[None, None, ControlRequestResult]:
        match sent.request:
            case BecomeLeaderOrFollower() as become:
                configs = self._topic_configs(_topics(sent), overrides)
                return ControlRequestResult((yield from self._replicas.become(become, configs, now)), [])
            case StopReplicas() as stop:
                return ControlRequestResult((yield from self._replicas.stop(stop, now)), [])
            case UpdateMetadata() as update:
                deleted = yield from update_view(self._view, update, sent.controller, overrides)
                return ControlRequestResult({}, deleted)

    def _topic_configs(self, named: Mapping[TopicName, Uuid], overrides: Overrides) -> Mapping[TopicName, TopicConfigs]:
        view = self._view
        return {
            name: self._configs.for_topic(
                view.topics[name].configs if is_known(view, name, topic_id) else overrides.get(name, {})
            )
            for name, topic_id in named.items()
        }


def _topics(sent: ControlRequest) -> dict[TopicName, Uuid]:
    """Return the topics in a request with their ids, none for a StopReplica."""
    if isinstance(sent.request, StopReplicas):
        return {}
    ids = sent.request.topic_ids
    return {name.topic: ids.get(name.topic, ZERO_UUID) for name in sent.request.partitions}
