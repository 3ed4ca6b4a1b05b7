"""Large plain Produce requests, whose batch goes to the log while it is received.

The log's side is log/log/streaming_append.py.

    front ──> begin ──> a mover receives, sums and writes the rest ──> finish ──> the answer

The front contains everything except the checksum. A request that is not plain is received as a whole, and so is a
request that proves invalid at its end. api/produce/plain_produce.py and api/produce/produce.py then handle it as usual.
"""

from __future__ import annotations

from odradek.api.produce import plain_produce, produce_acks
from odradek.api.produce.produce_admission import ZSTD_SINCE
from odradek.api.request.call import Peer
from odradek.api.templates.produce_template import ProduceTemplate
from odradek.base.errors import Refused
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP
from odradek.core.broker.broker import Broker
from odradek.core.kernel.moment import Moment
from odradek.core.partition import ingress
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Arrival
from odradek.core.partition.staging import Append
from odradek.record.compression import Codec
from odradek.record.crc import crc32c
from odradek.record.record_batch import CHECKSUMMED_FROM
from odradek.wire.request import Request

_NOTHING = memoryview(b"")


def begin_large_produce(
    broker: Broker, peer: Peer, request: Request, body_bytes: int, now: Moment
) -> LargeProduce | None:
    """Start a request of which only the front is there; return None to receive it as a whole.

    `body_bytes` is the size of the whole body.
    """
    body = request.body
    template, start = _known(peer, request, body_bytes)
    if template is None:
        return None
    leading = template.partitions[0].find_leader(broker)
    if leading is None:
        return None
    size = body_bytes - start - template.known.end_bytes
    front = memoryview(bytearray(body[start : start + size]))  # A copy, because it gets stamped.
    batch = ingress.announced(leading.partition, front, size, now)
    if batch is None:
        return None
    if template.version < ZSTD_SINCE and batch.codec is Codec.ZSTD:
        return None
    if batch.is_transactional and not broker.transactions.all_joined(template.transactional_id):
        return None
    arrival = leading.begin_arrival(batch, now.wall)
    if arrival is None:
        return None
    request.body = _NOTHING
    return LargeProduce(broker, request, template, leading, arrival, crc32c(front[CHECKSUMMED_FROM:]))


def _known(peer: Peer, request: Request, body_bytes: int) -> tuple[ProduceTemplate | None, int]:
    """Return the matching template with one partition, and the position of the records."""
    for template in peer.produce_templates.find_by_beginning(request):
        start = template.known.only_records(request.body, body_bytes)
        if start:
            return template, start
    return None, 0


class LargeProduce:
    """A batch that is being received; `crc` is the checksum of its front."""

    def __init__(  # noqa: PLR0917
        self,
        broker: Broker,
        request: Request,
        template: ProduceTemplate,
        leading: Leading,
        arrival: Arrival,
        crc: int,
    ) -> None:
        self._broker = broker
        self._template = template
        self._leading = leading
        self.request = request
        self.arrival = arrival
        self.crc = crc

    @property
    def tail_bytes(self) -> int:
        return self._template.known.end_bytes

    def finish(self, crc: int, tail: bytes, now: Moment) -> plain_produce.StagedPlainProduce | None:
        """Finish a batch that was received and written; return None, with nothing done, if it is invalid.

        Also return None if the topic's configuration by now requires checks of the records, which were not read.
        """
        if crc != self.arrival.batch.crc or any(tail) or ingress.needs_record_checks(self._leading.partition.configs):
            return None
        try:
            all_replicas = self._template.acks == produce_acks.ACKS_ALL
            append = self._broker.arrived(self._leading, self.arrival, now, all_replicas=all_replicas)
            return self._stage(append, now)
        except Refused:
            return None

    def failed(self, error: OSError, now: Moment) -> plain_produce.StagedPlainProduce:
        """Answer a batch that could not be written."""
        append = Append(self._leading, NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, needs_sync=False)
        append.refused = self._leading.arrival_failed(self.arrival, error)
        self._broker.purgatory.happened(self._leading.name)
        return self._stage(append, now)

    def forget(self) -> None:
        """Forget a batch that will not be completed."""
        self._leading.forget_arrival(self.arrival)

    def on_withdrawn(self) -> None:
        """Withdraw the batch because the log needs its end for another batch."""
        self._leading.on_arrival_withdrawn()

    def _stage(self, append: Append, now: Moment) -> plain_produce.StagedPlainProduce:
        start = self._leading.log.start_offset if self._leading.ended is None else NO_OFFSET
        return plain_produce.StagedPlainProduce(self.request, self._template, [append], [start], now)
