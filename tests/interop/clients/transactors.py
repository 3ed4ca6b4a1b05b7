"""What the tests ask of a transactional producer, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

TIMEOUT_MS = 60_000


class Transactor(Protocol):
    """One producer, ready to begin.  Each call may raise ClientError."""

    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """To partition 0, and wait until they are there."""

    def send_offset(self, offset: int) -> None:
        """Of partition 0 of the source, for the group, in this transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...
