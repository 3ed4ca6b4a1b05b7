"""One request with a parsed header and an encoded body."""

from __future__ import annotations


class Request:
    """One request.

    `body` is a writable view of the receive buffer, valid until the connection receives more data. `size` counts the
    whole frame including its length. `sequence` is the position in the connection's order of answers. Key and version
    are the peer's values and are not validated yet.
    """

    def __init__(  # noqa: PLR0917 (as many as a header has)
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        size: int,
        sequence: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.size = size
        self.sequence = sequence

    def __repr__(self) -> str:
        return (
            f"Request(key {self.api_key} v{self.api_version}, correlation {self.correlation_id}, "
            f"client {self.client_id!r}, {len(self.body)} bytes of body, sequence {self.sequence})"
        )
