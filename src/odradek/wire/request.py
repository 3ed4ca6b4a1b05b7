"""One request as the connection hands it on, with a parsed header and the body as bytes."""

from __future__ import annotations


class Request:
    """One request.  `body` lies in the receive buffer: writable, and valid until the connection is given more bytes.

    `size` counts the whole frame with its length.  `sequence` is the place in the connection's order of answers.  Key
    and version are what the peer said; nobody has looked yet whether they exist.
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
