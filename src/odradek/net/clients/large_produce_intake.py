"""Intake of a large produce request from the socket to the log, by a mover instead of the loop.

During the intake, the loop does not read from the connection. An intake ends in one of four ways:

- The response can be built.
- The request must be examined as a whole, and its bytes return to the loop's receive buffer.
- The log needs its end for another batch, and the bytes return as well.
- The peer has disconnected.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Protocol

from odradek.api.conversation import Conversation
from odradek.api.produce.large_produce import LargeProduce
from odradek.api.request.outcome import StagedRequest
from odradek.net.shell.shell import Shell
from odradek.wire.request import Request
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer

if TYPE_CHECKING:
    from odradek.net.native.mover import Transfer

log = logging.getLogger(__name__)

LEFT_BYTES_MIN = 64 * 1024  # A smaller rest arrives before a thread has woken.
# A mover keeps a large request from delaying others, as it receives outside the loop. A connection that is alone delays
# nobody, and the loop receives batches of 500 KB 1.4 times as fast.
ALONE_BYTES_MAX = 2 * 1024 * 1024  # A larger request is never held in memory, even if the connection is alone.


def is_for_mover(shell: Shell, left_bytes: int, steady: int) -> bool:
    """Return whether a mover should receive the remaining bytes for the connection that sent last."""
    return shell.movers.can_store and (left_bytes > ALONE_BYTES_MAX or not shell.active_connections.is_one(steady))


class Owner(Protocol):
    """Connection that owns an intake."""

    def intake_done(self, request: Request, outcome: StagedRequest) -> None: ...

    def intake_handed_back(self, parts: tuple[Buffer, ...], size: int) -> None:
        """Receive the request of `size` bytes normally; `parts` are its bytes so far.  Raises Malformed."""

    def intake_lost(self) -> None:
        """Abort the connection, which cannot continue."""


class Intake:
    """Intake of one request; created by `start_intake`."""

    def __init__(self, shell: Shell, conversation: Conversation, owner: Owner, large: LargeProduce) -> None:
        self._shell = shell
        self._conversation = conversation
        self._owner = owner
        self._large = large
        self._front = b""  # Front of the request as received.
        self._seen = 0
        self._transfer: Transfer | None = None

    @classmethod
    def start_intake(
        cls, shell: Shell, conversation: Conversation, large: LargeProduce, socket: int, owner: Owner
    ) -> Intake | None:
        """Start an intake, or return None if the loop must continue to receive the request."""
        intake = cls(shell, conversation, owner, large)
        if not intake._start(socket):
            large.forget()
            return None
        intake._front = conversation.wire.set_aside()
        return intake

    def _start(self, socket: int) -> bool:
        large, arrival = self._large, self._large.arrival
        self._transfer = self._shell.movers.store(
            socket,
            arrival.file,
            arrival.position,
            arrival.left,
            crc=large.crc,
            tail_bytes=large.tail_bytes,
            done=self._on_received,
        )
        arrival.withdraw = self._withdraw
        return self._transfer is not None

    def take_progress(self) -> bool:
        """Return whether bytes have arrived since the last call."""
        moved = self._shell.movers.moved(self._transfer) if self._transfer else self._seen
        has_moved, self._seen = moved > self._seen, moved
        return has_moved

    def drop(self) -> None:
        """Cancel the intake because the connection is closed."""
        if self._transfer is not None:
            self._shell.movers.cancel(self._transfer)
            self._transfer = None
            self._large.forget()

    def _on_received(self, transfer: Transfer) -> None:
        self._transfer = None
        try:
            self._received(transfer)
        except Exception:
            log.exception("unexpected error on %r after it was received", self._large.request)
            self._owner.intake_lost()

    def _received(self, transfer: Transfer) -> None:
        large, now = self._large, self._shell.now()
        self._shell.traffic.bytes_in += transfer.moved + len(transfer.tail)
        is_whole = transfer.moved == large.arrival.left and len(transfer.tail) == large.tail_bytes
        if not is_whole or (transfer.error and not transfer.is_files_error):
            large.forget()
            self._owner.intake_lost()
            return
        if transfer.error:
            error = OSError(transfer.error, os.strerror(transfer.error))
            self._owner.intake_done(large.request, large.failed(error, now))
            return
        outcome = self._conversation.finish_large(large, transfer.crc, transfer.tail, now)
        if outcome is not None:
            self._owner.intake_done(large.request, outcome)
        else:
            self._hand_back(transfer)
            large.forget()

    def _withdraw(self) -> None:
        transfer, self._transfer = self._transfer, None
        if transfer is None:
            return
        self._shell.movers.cancel(transfer)
        self._shell.traffic.bytes_in += transfer.moved + len(transfer.tail)
        self._large.on_withdrawn()
        self._hand_back(transfer)

    def _hand_back(self, transfer: Transfer) -> None:
        arrival = self._large.arrival
        try:
            written = b"" if transfer.error else arrival.file.pread(arrival.position, transfer.moved)
        except OSError:
            written = b""
        if len(written) != transfer.moved:  # Bytes that could not be written are lost.
            self._owner.intake_lost()
            return
        try:
            self._owner.intake_handed_back((self._front, written, transfer.tail), self._large.request.size)
        except Malformed:
            self._owner.intake_lost()
