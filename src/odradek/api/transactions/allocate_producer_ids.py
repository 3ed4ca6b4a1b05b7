"""AllocateProducerIds, version 0.

Assigns a block of producer ids to a broker (KIP-730). Brokers send this request to the controller; Odradek implements
both sides.
"""

from __future__ import annotations

from functools import partial

from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries
from odradek.api.request.outcome import ShortAnswer, Slices
from odradek.base.errors import ErrorCode, Refused, error_code
from odradek.base.units import BrokerId, ProducerId
from odradek.core.kernel.work import Work
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def handle(call: Call, body: AllocateProducerIdsRequest) -> Slices:
    take = authorized_queries(call).take_producer_ids
    block = yield Work(partial(take, BrokerId(body.broker_id), body.broker_epoch))
    assert isinstance(block, ProducerIdBlock)
    return ShortAnswer(
        AllocateProducerIdsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            producer_id_start=block.first,
            producer_id_len=block.last - block.first + 1,
        )
    )


def refuse(call: Call, body: AllocateProducerIdsRequest, code: ErrorCode) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(throttle_time_ms=0, error_code=code, producer_id_start=0, producer_id_len=0)


def to_message(broker: BrokerId, broker_epoch: int) -> AllocateProducerIdsRequest:
    """Return the message that requests a block."""
    return AllocateProducerIdsRequest(broker_id=broker, broker_epoch=broker_epoch)


def from_response(response: AllocateProducerIdsResponse) -> ProducerIdBlock:
    """Return the block. Raise Refused with the response's error, or if the block has no ids."""
    if response.error_code:
        raise Refused(error_code(response.error_code))
    first, length = response.producer_id_start, response.producer_id_len
    if first < 0 or length < 1:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"invalid block of {length} producer ids starting at {first}")
    return ProducerIdBlock(ProducerId(first), ProducerId(first + length - 1))
