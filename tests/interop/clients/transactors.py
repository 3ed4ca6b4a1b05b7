"""The interface of a transactional producer under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

TIMEOUT_MS = 60_000


class Transactor(Protocol):
    """One initialized producer. Each call may raise ClientError."""

    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """Send the values to partition 0, and wait for their acknowledgment."""

    def send_offset(self, offset: int) -> None:
        """Commit an offset of the source's partition 0 for the group, in this transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...
