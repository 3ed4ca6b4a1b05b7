"""Plain Produce requests, the most frequent kind: a template match and one valid batch per partition.

The templates are in api/templates/produce_template.py. Reading, handling and answering a small batch here costs a third
as much as in api/produce/produce.py. A request that is not plain, or fails, is left to produce.py before anything is
done: that module has all the rules and every error. If the second of several batches is refused, the first may be
staged already; produce.py then makes the answer.
"""

from __future__ import annotations

from odradek.api.produce import produce, produce_acks, produce_staging
from odradek.api.produce.produce_admission import admit_batch, may_write
from odradek.api.request.call import Peer
from odradek.api.request.outcome import NO_BODY, Encoded, StagedRequest, encoded
from odradek.api.templates.produce_template import ProduceTemplate
from odradek.api.templates.template_cache import PARTITIONS_MAX
from odradek.base.errors import Refused
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, Offset
from odradek.core.broker.broker import Broker
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.leading import Leading
from odradek.core.partition.staging import Append
from odradek.record.record_batch import Batch
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.request import Request


def stage(broker: Broker, peer: Peer, request: Request, now: Moment) -> StagedPlainProduce | None:
    """Stage a plain request; return None if the request is not plain. Raise Malformed."""
    found = peer.produce_templates.match_request(request, peer.admission.produce_templates)
    if found is None:
        return None
    template, records = found
    if len(records) > 1:
        return _stage_several(broker, request, template, records, now)
    leading = template.partitions[0].find_leader(broker)
    if leading is None:
        return None
    try:
        batch = admit_batch(leading.partition, records[0], template.version, now)
        if batch is None:
            return None
        join = None
        if batch.attributes and batch.is_transactional:  # Most batches have no attributes.
            if template.transactional_id is None:
                return None
            join = produce_staging.join_transaction(
                broker, leading, batch, template.version, template.transactional_id, now
            )
        append = broker.stage(leading, batch, now, all_replicas=template.acks == produce_acks.ACKS_ALL)
    except Refused:
        return None
    request.body = NO_BODY
    return StagedPlainProduce(request, template, [append], [leading.log.start_offset], now, join)


def _stage_several(
    broker: Broker, request: Request, template: ProduceTemplate, records: list[memoryview], now: Moment
) -> StagedPlainProduce | None:
    """Stage several batches; return None if one is transactional.

    Transactional batches join their transaction together.
    """
    staged: list[tuple[Leading, Batch]] = []
    for known, partition_records in zip(template.partitions, records, strict=True):
        leading = known.find_leader(broker)
        if leading is None:
            return None
        try:
            batch = admit_batch(leading.partition, partition_records, template.version, now)
        except Refused:
            return None
        if batch is None or batch.is_transactional:
            return None
        staged.append((leading, batch))
    request.body = NO_BODY
    appends, starts, all_replicas = [], [], template.acks == produce_acks.ACKS_ALL
    for leading, batch in staged:
        try:
            append, start = broker.stage(leading, batch, now, all_replicas=all_replicas), leading.log.start_offset
        except Refused as refused:
            append, start = Append(leading, NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, needs_sync=False), NO_OFFSET
            append.refused = refused
        appends.append(append)
        starts.append(start)
    return StagedPlainProduce(request, template, appends, starts, now)


def learn(
    peer: Peer, request: Request, received: memoryview, body: ProduceRequest, pending: produce.PendingProduce
) -> None:
    """Make a template of a staged request, read from `received`, so that the next one may be plain.

    A staged request was allowed. But its transactional id was checked only if the batch was transactional, and the next
    batch may be. Therefore the right to write with that id is checked here.
    """
    transactional_id = body.transactional_id
    count = sum(len(topic.partition_data) for topic in body.topic_data)
    if body.acks == produce_acks.ACKS_NONE or not len(pending.appended) == count <= PARTITIONS_MAX:
        return
    if transactional_id is not None and (count > 1 or not may_write(peer.admission.rights, transactional_id)):
        return
    names = [appended.name for appended in pending.appended]
    # Writes to internal topics are checked each time.
    if names and not any(name.topic in INTERNAL_TOPICS for name in names):
        peer.produce_templates.learn(request.api_version, body, names, received, peer.admission.produce_templates)


class StagedPlainProduce(StagedRequest):
    """A plain Produce request whose batches are staged, one for each partition."""

    is_quick = True

    def __init__(  # noqa: PLR0917
        self,
        request: Request,
        template: ProduceTemplate,
        appends: list[Append],
        log_start_offsets: list[Offset],
        now: Moment,
        join: PendingWrite | None = None,
    ) -> None:
        """Store the staged appends; `join` is the write that adds the only partition to its transaction."""
        self.request = request
        self.template = template
        self.appends = appends
        self.log_start_offsets = log_start_offsets
        self.now = now
        self.join = join

    def finish(self) -> Encoded | ParkedRequest[Encoded]:
        template = self.template
        if self._is_done():
            return [template.answer.frame(self.request.correlation_id, self._rows())]
        response = template.response(self._rows())
        parts = [part for topic in response.responses for part in topic.partition_responses]
        appended = [
            produce_acks.ProducePartitionStatus(known.name, append, part, self.join)
            for known, append, part in zip(template.partitions, self.appends, parts, strict=True)
        ]
        pending = produce.PendingProduce(self.now, template.acks, template.timeout_ms, response, appended)
        return encoded(self.request, pending.settle())

    def _rows(self) -> list[tuple[int, ...]]:
        rows: list[tuple[int, ...]] = []
        for number, append in enumerate(self.appends):
            rows.append((append.base_offset, append.log_append_time, self.log_start_offsets[number]))
        return rows

    def _is_done(self) -> bool:
        """Return whether all batches are appended without errors and need no wait for a sync or replicas."""
        waits_for_all = self.template.acks == produce_acks.ACKS_ALL
        if waits_for_all and self.join is not None:
            return False
        for append in self.appends:
            if append.refused is not None or append.needs_sync:
                return False
            if waits_for_all and not (append.is_safe and append.leading.has_min_isr):
                return False
        return True
