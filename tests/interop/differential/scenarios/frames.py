"""Frames, API keys and versions that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from differential.base import PLAIN
from differential.steps import ANSWERS, CLIENT_ID, CORRELATION_ID, KAFKAS, WRONG, Scenario, Step, request_step
from odradek.base.units import INT16_MAX, INT32_MAX
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.schema.api_keys import ApiKey

NO_API = (-1, 4, 5, 6, 7, 93, INT16_MAX)  # 4 to 7 were removed with ZooKeeper.
API_VERSIONS = (ApiVersionsResponse, 0)


def scenarios() -> list[Scenario]:
    steps = [*_sizes(), *(_headed(f"API {key}", key, 0, None) for key in NO_API), *_versions()]
    return [Scenario("frames", steps)]


def _sizes() -> Iterator[Step]:
    for size in (-INT32_MAX - 1, -1, 0, 1, 4, 7, 8, 9):
        yield _raw(f"size {size}", pack(">i", size) + bytes(max(size, 0)))
    yield _raw("size 104857601", pack(">i", 104857601) + bytes(64))
    yield _raw("size 2147483647", pack(">i", INT32_MAX) + bytes(64))


def _versions() -> Iterator[Step]:
    """Send versions next to the supported ones, and extreme values, with both kinds of header."""
    for key, api in sorted(KAFKAS.items()):
        last = api.versions.stop - 1
        versions = {-1, last + 1, INT16_MAX, -INT16_MAX - 1} | ({api.versions.start - 1, 0} - set(api.versions))
        answer = API_VERSIONS if key == ApiKey.API_VERSIONS else None
        for version in sorted(versions):
            for text, body in (("", b""), (" with tags", b"\0"), (" and a body", b"\0" + bytes(40))):
                name = f"{ApiKey(key).title} v{version}{text}"
                yield _headed(name, key, version, answer, body)
        good = request_step("", WRONG, PLAIN[key](last), last)
        yield good._replace(
            name=f"{ApiKey(key).title} v{last} called v{last + 1}",
            frame=good.frame[:6] + pack(">h", last + 1) + good.frame[8:],
            answer=answer,
        )


def _headed(name: str, key: int, version: int, answer: tuple[type, int] | None, body: bytes = b"") -> Step:
    client_id = CLIENT_ID.encode()
    data = pack(">hhih", key, version, CORRELATION_ID, len(client_id)) + client_id + body
    return _raw(name, pack(">i", len(data)) + data, key, version, answer)


def _raw(name: str, frame: bytes, key: int = -1, version: int = -1, answer: tuple[type, int] | None = None) -> Step:
    return Step(name, WRONG, key, version, frame, answer)


assert API_VERSIONS[0] in ANSWERS.values()
