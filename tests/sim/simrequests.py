"""Requests to a simulated broker: bytes for its conversations, over a network that loses and delays.

    Lines.send_request ──> a delay ──> the broker running by then ──> its response ──> a delay ──> the caller
                              └── the link is cut, or no broker runs ──> nothing, until the timeout

The caller is notified once, of the response or of its absence. Pipelined requests on one connection are in simpipes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Never, TypeVar

from odradek.api.conversation import Conversation
from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.base.units import BrokerId
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Change, Changed
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.kernel.cluster_view import Endpoint
from odradek.core.kernel.moment import Moment
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.log.files.disk import FileSlice
from odradek.net.loop.broker_timer import Ticking
from odradek.net.loop.pools import Pool
from odradek.net.loop.traffic import Latencies
from odradek.net.shell.effect_executor import Effects, Writers
from odradek.wire.connection import Connection
from sim.simclock import MILLISECOND_US, SECOND_US, SimNode
from sim.simloop import SimLoop
from support.at_once import done
from support.in_memory import AsItIs, InMemoryHost

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated

T = TypeVar("T")

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
HOUSEKEEPING_MS = 250
TIMEOUT_US = SECOND_US  # request.timeout.ms, which is 30 s elsewhere
LOST, LATE, LATEST_US = 0.02, 0.03, 400 * MILLISECOND_US
CLIENTS = BrokerId(-1)  # Where all clients are.


def _changes_nothing(change: object, *_: object) -> Never:
    raise AssertionError(f"nobody asked for {change}")


def _no_ids() -> ProducerIdBlock | None:
    raise AssertionError("nobody asked for producer ids")


def _clean(step: Clean) -> Cleaned:
    return step.run(lambda _: None)


class Talk:
    """One connection to a broker, at the broker's end."""

    def __init__(self, conversation: Conversation, answer: Callable[[bytes], None], requests: int) -> None:
        self.conversation = conversation
        self.received: list[bytes] = []  # Data not passed to its conversation yet.
        self.requests = requests  # Number of responses until it ends; negative for no limit.
        self._answer = answer

    def send(self) -> None:
        """Send the responses that are ready."""
        chunks = self.conversation.data_to_send()
        answers = b"".join(one.read() if isinstance(one, FileSlice) else bytes(one) for one in chunks)  # type: ignore[arg-type]
        while answers:
            end = 4 + int.from_bytes(answers[:4], "big")
            self.requests -= 1
            self._answer(answers[4:end])
            answers = answers[end:]


class SimServer:
    """One process of a broker: its requests, and its other work. All events of an instant are handled at once."""

    def __init__(
        self,
        broker: Broker,
        node: SimNode,
        delay_us: Callable[[], int],
        take: Callable[[], None],
        take_ids: Callable[[], ProducerIdBlock | None] = _no_ids,
    ) -> None:
        """Create a process; `take` starts requests to others, and `delay_us` is the duration of file work."""
        self.broker = broker
        self._node = node
        self._delay_us = delay_us
        self._take = take
        self._host = InMemoryHost(broker, AsItIs())
        self._peer = Peer("PLAINTEXT", ENDPOINT, None, "127.0.0.1:50000")
        self._peer.admission = Admission()
        self._talks: dict[Conversation, Talk] = {}
        self._is_settling = False
        writers = Writers(_changes_nothing, lambda _: take_ids(), _changes_nothing)
        self._effects = Effects(self, broker, self, writers, clean=_clean, syncs=Latencies())
        self._ticking = Ticking(
            SimLoop(node),
            broker,
            self.now,
            self.settle,
            start_housekeeping=self._keep_house,
            housekeeping_ms=HOUSEKEEPING_MS,
        )
        self.settle()

    def now(self) -> Moment:
        return self._node.now()

    def serve(self, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """Handle a request on a connection of its own."""
        self.receive(self.connect(answer, requests=1), frame)

    def connect(self, answer: Callable[[bytes], None], *, requests: int = -1) -> Talk:
        """Open a connection that ends after a number of requests; `answer` receives the responses in order."""
        talk = Talk(Conversation(self._host, self._peer, Connection(), lambda: None), answer, requests)
        self._talks[talk.conversation] = talk
        return talk

    def receive(self, talk: Talk, *frames: bytes) -> None:
        """Handle all that has arrived on a connection."""
        talk.received += frames
        self._continue(talk)
        self.settle()

    def _continue(self, talk: Talk) -> None:
        now, conversation = self.now(), talk.conversation
        if talk.received and not conversation.has_unhandled:
            conversation.receive_data(b"".join(talk.received))
            talk.received.clear()
        while conversation.step(now, 0):
            pass
        conversation.commit(now, 0)
        assert conversation.ending is None, f"{conversation.ending and conversation.ending.reason!r}"
        talk.send()
        if not talk.requests:
            del self._talks[conversation]

    def settle(self) -> None:
        """Do all work that has become possible."""
        if self._is_settling:
            return
        self._is_settling = True
        while self._settle_once():
            pass
        self._take()
        while self._settle_once():
            pass
        self._is_settling = False
        self._ticking.set()

    def _settle_once(self) -> bool:
        broker, now = self.broker, self.now()
        effects = broker.take_effects()
        for effect in effects:
            self._effects.start(effect)
        completed = broker.purgatory.take_completed()
        for parked in completed:
            conversation = parked.owner
            assert isinstance(conversation, Conversation)
            conversation.answer_parked(parked, now)
            self._continue(self._talks[conversation])
        for talk in list(self._talks.values()):
            if talk.conversation.can_continue(now):
                self._continue(talk)
        return bool(effects or completed)

    # Work outside the loop.

    def in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None], pool: Pool) -> None:
        """Run work in a thread: at once if a request waits for it, otherwise with a delay."""
        self._node.after(0 if pool is Pool.WORK else self._delay_us(), lambda: then(done(work)))

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        raise AssertionError("nobody changes the tree over this broker")

    def add_slices(self, work: Iterator[None]) -> None:
        for _ in work:
            pass
        self.settle()

    def forwards(self, change: Change) -> bool:
        raise AssertionError(f"nobody asked for {change}")

    def changed(self, change: Change, changed: Changed) -> None:
        raise AssertionError(f"nobody asked for {change}")

    def _keep_house(self, now: Moment) -> None:
        for _ in self.broker.run_housekeeping(now):
            pass


class Lines:
    """The network between brokers, and from clients to them."""

    def __init__(self, members: dict[BrokerId, SimReplicated], node: SimNode, delay_us: Callable[[], int]) -> None:
        """Create the network; `node` is the clients' node."""
        self._members = members
        self.clients = node
        self._delay_us = delay_us
        self.loses_some = True
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()  # Cut links, from sender to receiver.

    def delay_us(self) -> int:
        """Return the latency of a message, which is now and then very long."""
        random = self.clients.random
        is_late = self.loses_some and random.random() < LATE
        return random.randrange(LATEST_US) if is_late else self._delay_us()

    def loses(self, sender: BrokerId, receiver: BrokerId) -> bool:
        """Return True if a message sent now is lost."""
        is_lost = self.loses_some and self.clients.random.random() < LOST
        return is_lost or (sender, receiver) in self.cuts

    def send_request(
        self,
        sender: BrokerId,
        receiver: BrokerId,
        serve: Callable[[SimReplicated, Callable[[T], None]], None],
        then: Callable[[T | None], None],
    ) -> None:
        """Call `serve` with the receiver and a callback for its response; `then` receives the response, or None."""
        node = self.clients if sender == CLIENTS else self._members[sender].node
        life, is_over = node.life, False

        def ended(answer: T | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timeout.cancel()
                then(answer)

        def answered(answer: T) -> None:
            if node.life == life and not self.loses(receiver, sender):
                node.after(self.delay_us(), lambda: ended(answer))

        def arrived() -> None:
            member = self._members[receiver]
            if member.is_alive and not self.loses(sender, receiver):
                member.node.soon(lambda: serve(member, answered))

        timeout = node.after(TIMEOUT_US, lambda: ended(None))
        node.clock.after(self.delay_us(), arrived)
