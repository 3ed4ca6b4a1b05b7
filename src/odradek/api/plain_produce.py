"""The produce request that nearly all are: one topic, one partition, a good batch, and like one before (outlines.py).

Reading, handling and answering a small batch costs a third of what it costs in produce.py.  Whatever is not plain, or
goes wrong, is left to produce.py before anything was done: it has all the rules and every error.
"""

from __future__ import annotations

from odradek.api import produce
from odradek.api.call import Peer
from odradek.api.outcome import NO_BODY, Encoded, Staged, encoded
from odradek.api.outlines import Outline
from odradek.base.errors import Refused
from odradek.base.units import Offset
from odradek.core import ingress
from odradek.core.broker import Broker
from odradek.core.cluster import INTERNAL_TOPICS
from odradek.core.coordinators.durable import Written
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.core.staging import Append
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.request import Request


def stage(broker: Broker, peer: Peer, request: Request, now: Moment) -> PlainStaged | None:
    """None if it is not plain.  Raises Malformed."""
    found = peer.outlines.find(request, peer.admission.outlines)
    if found is None:
        return None
    outline, records = found
    partition = outline.find(broker)
    if partition is None:
        return None
    try:
        batch = ingress.admitted(partition, records, now, at_once=True)
        join = None
        if batch.attributes:  # None are set in most batches.
            join = produce.admit(broker, partition, batch, outline.version, outline.transactional_id, now)
        append = broker.stage(partition, batch, now, all_replicas=outline.acks == produce.ACKS_ALL)
    except Refused:
        return None
    request.body = NO_BODY
    return PlainStaged(broker, request, outline, append, partition.log.start_offset, now, join)


def learn(peer: Peer, request: Request, received: memoryview, body: ProduceRequest, done: produce.Staged) -> None:
    """A request was read from `received` and staged: the next one like it may be plain.

    What was staged was allowed.  The transactional id was asked only if the batch was of a transaction; the next one
    may be.
    """
    transactional_id = body.transactional_id
    if body.acks == produce.ACKS_NONE:
        return
    if transactional_id is not None and not produce.may_write(peer.admission.rights, transactional_id):
        return
    if len(body.topic_data) == len(done.appended) == 1 == len(body.topic_data[0].partition_data):
        name = done.appended[0].name
        if name.topic not in INTERNAL_TOPICS:  # Who may write there is asked each time.
            peer.outlines.learn(request.api_version, body, name, received, peer.admission.outlines)


class PlainStaged(Staged):
    """One batch of one partition on its way."""

    is_quick = True

    def __init__(  # noqa: PLR0917
        self,
        broker: Broker,
        request: Request,
        outline: Outline,
        append: Append,
        log_start_offset: Offset,
        now: Moment,
        join: Written | None = None,
    ) -> None:
        self.broker = broker
        self.request = request
        self.outline = outline
        self.append = append
        self.log_start_offset = log_start_offset
        self.now = now
        self.join = join

    def finish(self) -> Encoded | Parked[Encoded]:
        append, outline = self.append, self.outline
        if (
            append.refused is None
            and not append.needs_sync
            and (outline.acks != produce.ACKS_ALL or self._is_everywhere())
        ):
            return outline.answer.encode(
                self.request, append.base_offset, append.log_append_time, self.log_start_offset
            )
        response = outline.response(append.base_offset, append.log_append_time, self.log_start_offset)
        part = response.responses[0].partition_responses[0]
        appended = [produce.Appended(outline.name, append, part, self.join)]
        general = produce.Staged(self.broker, self.now, outline.acks, outline.timeout_ms, response, appended)
        return encoded(self.request, general.settle())

    def _is_everywhere(self) -> bool:
        """Nobody else has to have it first."""
        if self.join is not None:
            return False
        partition = self.broker.partitions.get(self.outline.name)
        return partition is not None and self.append.end <= partition.positions.high_watermark
