"""A transactional producer: transactions that are committed or aborted, until another producer takes over.

    InitProducerId ──> sends, maybe with its input's offsets ──> EndTxn ──> the next transaction
          ^______________________ unknown outcome ______|

A fenced producer stops if it has a successor; otherwise it starts again, like a restarted process.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sim.history import Transaction
from sim.simclients import Environment
from sim.simclock import MILLISECOND_US, SECOND_US, SimNode
from sim.simsends import GIVE_UP_SHARE, SimSender
from sim.simsteps import FENCED, Steps, TransactionFailed

PAUSE_US = (MILLISECOND_US, 600 * MILLISECOND_US)
TAKEOVER_US = (3 * SECOND_US, 25 * SECOND_US)
PAUSED_US = (10 * MILLISECOND_US, 12 * SECOND_US)
TIMEOUTS_MS = (3_000, 20_000, 60_000)
LINGER_US = (100 * MILLISECOND_US, 6 * SECOND_US)
COMMITTED_SHARE, LINGER_SHARE = 0.75, 0.3


class SimTransactor(SimSender):
    """A producer of its own values, "name-number", to some partitions of one topic in each transaction."""

    writes = True

    def __init__(
        self, name: str, node: SimNode, environment: Environment, topic: TopicName, transactional_id: str
    ) -> None:
        super().__init__(name, node, environment, topic, transactional_id)
        self.is_succeeded = False  # Another instance has taken over, or is about to.
        self._timeout_ms = self.random.choice(TIMEOUTS_MS)
        self._end_version = 5 if self.has_epochs else self.random.choice((2, 4))
        self._is_fenced = False

    # Its life.

    def live(self) -> Steps[None]:
        yield from self.find_all([self.topic])
        while not self.is_draining:
            yield from self._begin()
            while not self.is_draining and (yield from self._transact()):
                yield self.pause(PAUSE_US)
            if self._is_fenced and self.is_succeeded:
                self.add_event("fenced", "and has a successor")
                return

    def _begin(self) -> Steps[None]:
        """Request an identity with InitProducerId, which fences earlier producers of the transactional id."""
        yield from self.find_coordinator(self.transactional_id, 1)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        response, code = yield from self.request_with_retries(
            request, 4, InitProducerIdResponse, lambda answer: answer.error_code
        )
        assert code is ErrorCode.NONE, f"{self.name} gets no producer id: {code.name}"
        self._is_fenced = False
        self.identify(response.producer_id, response.producer_epoch)
        self.history.identities.append(self.identity)
        yield from self.begun()

    def begun(self) -> Steps[None]:
        """Prepare for a new identity; subclasses override this."""
        yield from ()

    # One transaction.

    def _transact(self) -> Steps[bool]:
        """Play one transaction; return True if the identity remains valid for another one."""
        transaction = Transaction(self.name, self.identity, self.environment.clock.now_us)
        self.history.transactions.append(transaction)
        self.added.clear()
        try:
            yield from self.fill(transaction)
            yield from self._linger()
            yield from self._end(transaction, is_commit=self.random.random() < COMMITTED_SHARE)
            return True
        except TransactionFailed as failed:
            self.add_event("spoilt", failed.code.name)
            yield from self._clear_up(transaction, failed.code)
            return False
        finally:
            transaction.ended_us = self.environment.clock.now_us

    def fill(self, transaction: Transaction) -> Steps[None]:
        """Send the contents of the transaction; raise TransactionFailed."""
        for _ in range(self.random.randrange(1, 4)):
            yield from self.send(transaction)

    def _linger(self) -> Steps[None]:
        """Leave the transaction open for a while if topics are compacted: the cleaner has to wait for its end."""
        if self.history.compaction is not None and self.random.random() < LINGER_SHARE:
            yield self.pause(LINGER_US)

    def _clear_up(self, transaction: Transaction, code: ErrorCode) -> Steps[None]:
        """Abort the transaction, or leave that to InitProducerId; a fenced producer sends nothing more."""
        for sent in transaction.sent:
            sent.is_given_up |= sent.acknowledged_us is None
        self._is_fenced = code in FENCED
        if self._is_fenced or transaction.commit_requested_us is not None or self.random.random() < 0.5:
            return
        try:
            yield from self._end(transaction, is_commit=False)
        except TransactionFailed as failed:
            self._is_fenced = failed.code in FENCED

    def _end(self, transaction: Transaction, *, is_commit: bool) -> Steps[None]:
        """Commit or abort the transaction; raise TransactionFailed if its outcome cannot be known."""
        producer_id, epoch = self.identity.producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        self.add_event("end", "commit" if is_commit else "abort")
        if is_commit:
            transaction.commit_requested_us = self.environment.clock.now_us
            self.on_commit_requested(transaction)
        response, code = yield from self.request_with_retries(
            request, self._end_version, EndTxnResponse, lambda one: one.error_code, patience=1 - GIVE_UP_SHARE
        )
        if code is not ErrorCode.NONE:
            raise TransactionFailed(code)
        transaction.is_committed = is_commit
        self.add_event("ended", "committed" if is_commit else "aborted")
        if self.has_epochs:
            self.identify(response.producer_id, response.producer_epoch)
        self.ended(transaction)

    def on_commit_requested(self, transaction: Transaction) -> None:
        """Prepare for the first EndTxn that requests the commit."""

    def ended(self, transaction: Transaction) -> None:
        """Handle the known outcome of the transaction."""
