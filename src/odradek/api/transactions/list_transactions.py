"""ListTransactions, versions 0 to 2.

Lists the transactional ids that this broker coordinates (KIP-664).

- v1: filters by the minimum time that a transaction has been open (KIP-994).
- v2: filters by a pattern of the transactional id (KIP-1152).
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP
from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.patterns import Pattern
from odradek.core.transactions.transaction_states import Transaction, TransactionState
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.list_transactions import TransactionState as Listed

STATES = {state.title: state for state in TransactionState}


def handle(call: Call, body: ListTransactionsRequest) -> Slices:
    shards = call.broker.transactions.shards
    if shards.is_loading:
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    filters = _TransactionFilters(call, body)
    listed, unknown = [], []
    for number, name in enumerate(body.state_filters, 1):
        if name in STATES:
            filters.states.add(name)
        else:
            unknown.append(name)
        if not number % CHEAP:
            yield PAUSE
    for shard in shards:
        for number, transactional_id in enumerate(list(shard.transactions)):
            transaction = shard.transactions.get(transactional_id)  # Its state now, because other requests have run.
            if transaction is not None and filters.includes(transaction) and _may_describe(call, transaction):
                listed.append(_listed(transaction))
            if number % CHEAP == CHEAP - 1:
                yield PAUSE
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=listed,
    )


def refuse(call: Call, body: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[]
    )


def _may_describe(call: Call, transaction: Transaction) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.id)


class _TransactionFilters:
    """The filters of a request; an empty filter accepts all. The caller fills in the known `states`."""

    def __init__(self, call: Call, body: ListTransactionsRequest) -> None:
        """Parse the filters. Raise Refused(INVALID_REGULAR_EXPRESSION)."""
        self._now = call.now.wall
        self._in_any_state = not body.state_filters
        self.states: set[str] = set()
        self._producers = frozenset(body.producer_id_filters)
        self._open_for_ms = body.duration_filter
        self._pattern = Pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None

    def includes(self, transaction: Transaction) -> bool:
        if transaction.state is TransactionState.DEAD:
            return False
        if self._producers and transaction.producer_id not in self._producers:
            return False
        if not self._in_any_state and transaction.state.title not in self.states:
            return False
        if self._open_for_ms >= 0 and not (
            transaction.started >= 0 and self._now - transaction.started > self._open_for_ms
        ):
            return False
        return self._pattern is None or self._pattern.matches(transaction.id)


def _listed(transaction: Transaction) -> Listed:
    return Listed(
        transactional_id=transaction.id, producer_id=transaction.producer_id, transaction_state=transaction.state.title
    )
