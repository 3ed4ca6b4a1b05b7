"""Producer ids from the metadata tree: a failure is returned to waiting clients, which may retry."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId
from odradek.coordination.tree_layout import BadZnodeError
from odradek.core.broker.effects import AllocateProducerIds
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.cluster.tree_metadata import Metadata
from odradek.testing import Broker
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.raw_client import RawClient

pytestmark = pytest.mark.waits


def test_repaired_znode_gives_ids_again(monkeypatch: pytest.MonkeyPatch) -> None:
    take, failures = Metadata.take_producer_ids, [BadZnodeError("garbled")]

    def fails_once(metadata: Metadata, broker_id: BrokerId, effect: AllocateProducerIds) -> ProducerIdBlock | None:
        if failures:
            raise failures.pop()
        return take(metadata, broker_id, effect)

    monkeypatch.setattr(Metadata, "take_producer_ids", fails_once)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    with Broker() as broker, RawClient(broker.port) as client:
        codes = [client.request(request, 4, InitProducerIdResponse).error_code for _ in range(2)]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
