"""The transaction coordinator: producers, the partitions of their transactions, and timeouts.

InitProducerId is in beginning.py, the end of a transaction in ending.py and completion.py, and the allowed
transitions are in rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Load, Shards
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.cluster_view import TRANSACTION_STATE
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Partition
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.add_partitions import AddPartitionsToTxnManager
from odradek.core.transactions.addition_queue import Codes
from odradek.core.transactions.additions import TransactionQuery
from odradek.core.transactions.beginning import NO_IDS, InitProducerId, InitProducerIdResult, PendingInitProducerId
from odradek.core.transactions.completion import Completions
from odradek.core.transactions.ending import EndTxn, EndTxnResult, PendingEndTxn
from odradek.core.transactions.hanging import HangingTransactions, all_led, all_shards
from odradek.core.transactions.producer_ids import ProducerIds
from odradek.core.transactions.transaction_markers import WriteMarker
from odradek.core.transactions.transaction_shard import TransactionShard
from odradek.core.transactions.transaction_state_manager import TransactionStateManager
from odradek.core.transactions.transaction_states import Transaction
from odradek.core.transactions.unsafe_additions import UnsafeAdditions


class TransactionCoordinator:
    """The transaction coordinator of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        request_load: Callable[[Load], None],
        request_ids: Callable[[], None],
        write_marker: WriteMarker,
    ) -> None:
        self.runtime = runtime
        self.ids = ProducerIds(request_ids)
        self.completions = Completions(runtime, write_marker)
        self.markers = self.completions.markers
        self.may_hang = False  # Transactions left open by an unclean shutdown remain to be checked.
        self._write_marker = write_marker
        self.shards = Shards(TRANSACTION_STATE, self._make, request_load, runtime)
        self.states = TransactionStateManager(runtime, self.shards, self.ids, self.completions)
        self.additions = AddPartitionsToTxnManager(runtime, self.shards.elsewhere, self._answer)
        configs = runtime.configs
        self.timeout_ms_max = configs.int("transaction.max.timeout.ms")
        self.allows_two_phases = configs.bool("transaction.two.phase.commit.enable")
        self.joins = UnsafeAdditions(self.timeout_ms_max)

    def _make(self, leading: Leading) -> TransactionShard:
        return TransactionShard(leading, self.runtime, self._resume)

    def _resume(self, shard: TransactionShard, transaction: Transaction, now: Moment) -> None:
        """Continue a loaded transaction, as far as an earlier leader may have advanced it.

        Records that are not safe yet may be lost with this leader. Its markers would then have ended a transaction in
        some partitions, and the next coordinator would abort it in the others.
        """
        inherited = shard.log.inherited()
        if transaction.is_decided:
            resume = self.completions.resume
            self.runtime.steps.when_safe(inherited, lambda later: resume(shard, transaction, later), now)
        elif not inherited.is_safe:
            self.joins.wrote(transaction.id, inherited)

    # InitProducerId.

    def new_producer(self) -> Promise[InitProducerIdResult]:
        """Allocate an id for a producer without transactions."""
        promise: Promise[InitProducerIdResult] = Promise()

        def use(producer_id: ProducerId | None) -> None:
            result = (
                NO_IDS
                if producer_id is None
                else InitProducerIdResult(ErrorCode.NONE, ProducerIdAndEpoch(producer_id, ProducerEpoch(0)))
            )
            promise.keep(self.runtime.purgatory, result)

        self.ids.allocate_id(use)
        return promise

    def init_producer_id(self, request: InitProducerId, now: Moment) -> Promise[InitProducerIdResult]:
        """Begin an InitProducerId, or raise Refused(NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS)."""
        self.shards.find_shard(request.transactional_id)
        beginning = PendingInitProducerId(self.states, request)
        beginning.advance(now)
        return beginning.promise

    # The partitions of a transaction.

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        version: int,
        now: Moment,
    ) -> PendingWrite | None:
        """Add partitions to the transaction and return the write to wait for.

        Returns None if they had joined it safely before. Raises Refused.
        """
        shard, current = self.states.find_transaction(transactional_id)
        updated = rules.add_partitions(current, producer, partitions, version, now.wall)
        assert updated.client == producer and len(updated.partitions) >= len(current.partitions)
        if updated is not current:
            self.joins.wrote(transactional_id, shard.put(updated, now))
        self.joins.confirmed(transactional_id, partitions)
        return self.unsafe_join(transactional_id)

    def unsafe_join(self, transactional_id: str) -> PendingWrite | None:
        """Return the last write that added partitions to the transaction, or None if it is safe.

        No batch in those partitions may be acknowledged before the write is safe. Otherwise the transaction could
        commit without them.
        """
        return self.joins.unsafe(transactional_id)

    def all_joined(self, transactional_id: str | None) -> bool:
        """Return whether no partition's join is pending or in doubt, so a batch waits only for itself."""
        return transactional_id is not None and not self.joins.lost and self.unsafe_join(transactional_id) is None

    def has_joined(self, leading: Leading, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the partition's own log shows that it is part of the producer's transaction.

        While there may be hanging transactions the log proves nothing: its open transaction may be only a remnant.
        """
        return not self.may_hang and leading.has_open_transaction(producer.id, producer.epoch)

    def is_sure(self, leading: Leading, transactional_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the partition has certainly joined, so that no coordinator must be asked."""
        return self.has_joined(leading, producer) and not self.joins.is_in_doubt(transactional_id, leading.name)

    def verifies(self, *, adds: bool) -> bool:
        """Return whether the coordinator verifies writes, as always if they add partitions."""
        return adds or self.runtime.configs.bool("transaction.partition.verification.enable")

    def must_verify_first(self, leading: Leading, transactional_id: str) -> bool:
        """Return whether the coordinator must answer before the partition stages any batch of the transaction.

        This is the case if the coordinator is another broker, or if one of the two logs has followers. With
        followers, the join could be lost without the batch that depends on it. A new leader would then report that
        the partition had joined.
        """
        if self.shards.elsewhere(transactional_id) is not None or leading.in_sync is not None:
            return True
        state = self.shards.leading(transactional_id)
        return state is not None and state.in_sync is not None

    def check_added(self, transactional_id: str, producer: ProducerIdAndEpoch, name: TopicPartition) -> None:
        """Raise Refused if the partition is not part of the producer's open transaction (KIP-890)."""
        _, transaction = self.states.find_transaction(transactional_id)
        rules.check_producer(transaction, producer)
        if name not in transaction.partitions:
            raise Refused(ErrorCode.TRANSACTION_ABORTABLE, f"partition {name} is not part of the transaction")

    def _answer(
        self, query: TransactionQuery, names: Collection[TopicPartition], now: Moment
    ) -> tuple[Codes, PendingWrite | None]:
        """Answer this broker's own query as AddPartitionsToTxn answers that of another broker.

        Returns the error code of each partition, and the write that must be safe before they apply.
        """
        transactional_id, producer, adds = query
        if not adds:
            codes = {name: self._code_of(query, name) for name in names}
            return codes, self.unsafe_join(transactional_id)
        try:
            written = self.add_partitions(transactional_id, producer, names, rules.EPOCH_PER_TRANSACTION, now)
        except Refused as refused:
            return dict.fromkeys(names, refused.code), None
        return dict.fromkeys(names, ErrorCode.NONE), written

    def _code_of(self, query: TransactionQuery, name: TopicPartition) -> ErrorCode:
        try:
            self.check_added(query.transactional_id, query.producer, name)
        except Refused as refused:
            return refused.code
        return ErrorCode.NONE

    def verified(
        self, transactional_id: str, producer: ProducerIdAndEpoch, name: TopicPartition
    ) -> PendingWrite | None:
        """Check as check_added does, and return the write that added partitions, or None if it is safe."""
        self.check_added(transactional_id, producer, name)
        self.joins.confirmed(transactional_id, (name,))
        return self.unsafe_join(transactional_id)

    def admit(
        self, leading: Leading, producer: ProducerIdAndEpoch, transactional_id: str, now: Moment, *, adds: bool
    ) -> PendingWrite | None:
        """Admit a producer's write to a partition in its transaction; with `adds` the partition joins it.

        Returns the coordinator's write that must be safe before this one is acknowledged, or None. Raises Refused as
        add_partitions and check_added do.
        """
        name = leading.name
        if self.is_sure(leading, transactional_id, producer):
            return self.unsafe_join(transactional_id)
        if self.verifies(adds=adds) and self.must_verify_first(leading, transactional_id):
            raise Refused(
                ErrorCode.NOT_COORDINATOR, f"the coordinator of {transactional_id} has not verified {name} yet"
            )
        written = None
        if adds:
            written = self.add_partitions(transactional_id, producer, (name,), rules.EPOCH_PER_TRANSACTION, now)
        elif self.verifies(adds=adds):
            written = self.verified(transactional_id, producer, name)
        if self.may_hang and leading.has_transaction_before(producer.id, producer.epoch):
            # It will be ended within a second, but not by the end of this transaction.
            raise Refused(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"an older transaction of the producer in {name} is still open"
            )
        return written

    # EndTxn.

    def end_transaction(self, end: EndTxn, now: Moment) -> Promise[EndTxnResult]:
        """Begin an EndTxn, or raise Refused as `TransactionStateManager.find_transaction` does."""
        ending = PendingEndTxn(self.states, end)
        ending.advance(now)
        return ending.promise

    # Periodic tasks.

    def end_hanging(self, partitions: Mapping[TopicPartition, Partition], now: Moment) -> Iterator[None]:
        """End hanging transactions in slices, once all local partitions are led and loaded.

        Called again until none is left.
        """
        view = self.runtime.view()
        is_whole = yield from all_led(self.runtime.broker_id, view, partitions)
        if not is_whole or self.shards.is_loading:
            return
        topic = view.topics.get(TRANSACTION_STATE)
        shards = None if topic is None else all_shards(self.shards, len(topic.partitions))
        if shards is None:
            self.may_hang = False  # The coordinators of the other shards would have to be asked.
        else:
            is_done = yield from HangingTransactions(shards, self.completions, self._write_marker).end_hanging(
                partitions, now
            )
            self.may_hang = not is_done

    def run_housekeeping(self, now: Moment) -> Iterator[None]:
        """Run the periodic tasks in slices, about once a second: transaction timeouts, expiry of ids."""
        self.shards.run_housekeeping(now)
        self.joins.expire_lost_writes(now)
        yield from self.states.run_housekeeping(now)
