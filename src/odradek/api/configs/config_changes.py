"""Common code of AlterConfigs and IncrementalAlterConfigs, which change each resource independently.

This module finds the errors of the request itself. The thread that changes the metadata tree checks the values against
the existing configuration (core/configs/config_validation.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from odradek.api.configs.config_resources import ResourceType
from odradek.api.request.call import Call
from odradek.api.request.log_fields import of_call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, parked, pauses
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import SECOND_MS
from odradek.core.broker.effects import AlterConfigs, Altered, ConfigOwner
from odradek.core.configs.edits import ConfigEdit, KeyEdit, Operation
from odradek.core.kernel import access, topic_names
from odradek.wire.schema.api_keys import ApiKey

TIMEOUT_MS = 30 * SECOND_MS  # The requests have no timeout field; clients time out after the same time by default.
KEYS_MAX = 1000  # Limit per resource; a broker has some four hundred.
KEYS_PER_PART = 8
_NUMBER = re.compile(r"[+-]?\d{1,10}")

Key = tuple[str, int, str | None]  # Its name, an operation, a value.


class Resource(Protocol):
    """A resource in a request."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]: ...


R = TypeVar("R", bound=Resource)
ResourceResponse = TypeVar("ResourceResponse")
Validated = list[tuple[R, ConfigOwner | Refused]]  # Each resource with its owner, or the reason why it is not changed.


class DelayedAlterConfigs:
    """The condition that one AlterConfigs has ended, with its result."""

    def __init__(self, change: AlterConfigs) -> None:
        self.keys = (change.token,)
        self._end: Altered | None = None

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        assert isinstance(news, Altered)
        self._end = news
        return True

    def refusal(self, owner: ConfigOwner) -> Refused | None:
        if self._end is None:
            return Refused(ErrorCode.REQUEST_TIMED_OUT, "the change did not complete in time and may still complete")
        return self._end.refused.get(owner)


def apply_changes(
    call: Call,
    api: ApiKey,
    resources: Sequence[R],
    *,
    keys: Callable[[R], list[Key]],
    resource_response: Callable[[R, Refused | None], ResourceResponse],
    answer: Callable[[list[ResourceResponse]], object],
    is_dry: bool,
    replaces_all: bool = False,
) -> Slices:
    """Apply the `keys` of each resource; make the `answer` from the `resource_response` of each."""
    validated, edits = yield from _validate(call, resources, keys, replaces_all)
    if not edits:
        return (yield from _answer(validated, None, resource_response, answer))
    client_fields = of_call(call, api)
    ended = DelayedAlterConfigs(
        call.broker.changes.request_change(lambda token: AlterConfigs(token, edits, client_fields, is_dry))
    )
    deadline = call.now.steady + TIMEOUT_MS
    return (
        yield from parked(ended, deadline, len(validated), lambda: _answer(validated, ended, resource_response, answer))
    )


def response_maker(kind: Callable[..., ResourceResponse]) -> Callable[[Resource, Refused | None], ResourceResponse]:
    """Return a function that makes the response for one resource, a message of this kind."""

    def result_of(resource: Resource, refused: Refused | None) -> ResourceResponse:
        return kind(
            error_code=ErrorCode.NONE if refused is None else refused.code,
            error_message=None if refused is None else refused.detail or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return result_of


def _validate(
    call: Call, resources: Sequence[R], keys: Callable[[R], list[Key]], replaces_all: bool
) -> Parts[tuple[Validated[R], dict[ConfigOwner, ConfigEdit]]]:
    named: Counter[tuple[int, str]] = Counter()
    validated: Validated[R] = []
    edits: dict[ConfigOwner, ConfigEdit] = {}
    call.free_later((named, validated, edits))
    for number, resource in enumerate(resources, 1):
        named[resource.resource_type, resource.resource_name] += 1
        if not number % CHEAP:
            yield
    for resource in resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            owner = _owner(call, resource.resource_type, resource.resource_name)
            if owner in edits:  # Broker 1 and broker 01, for example.
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len(resource.configs) > KEYS_MAX:
                raise Refused(ErrorCode.INVALID_REQUEST, f"a resource has more than {KEYS_MAX} keys")
            edits[owner] = ConfigEdit(_validate_keys(keys(resource)), replaces_all)
            validated.append((resource, owner))
            yield from pauses(len(resource.configs) // KEYS_PER_PART)
        except Refused as refused:
            validated.append((resource, refused))
        yield
    return validated, edits


def _owner(call: Call, kind: int, name: str) -> ConfigOwner:
    """Return the owner of the configuration, if the client may change it. Raise Refused."""
    if kind == ResourceType.TOPIC:
        call.check(access.Operation.ALTER_CONFIGS, access.ResourceType.TOPIC, name)
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        return ConfigOwner(True, topic_names.checked(name))
    if kind == ResourceType.BROKER:
        call.check(access.Operation.ALTER_CONFIGS, access.ResourceType.CLUSTER)
        return ConfigOwner(False, _broker_name(call, name))
    if kind in (ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        text = f"Unsupported resource type {ResourceType(kind).name}: only topics and brokers can be configured"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _broker_name(call: Call, name: str) -> str:
    if not name:
        return name
    if not _NUMBER.fullmatch(name):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != call.broker.id:
        text = f"Unexpected broker id, expected {call.broker.id}, but received {name}"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    return str(call.broker.id)


def _validate_keys(keys: list[Key]) -> tuple[KeyEdit, ...]:
    """Return the operations. Raise Refused."""
    if len({name for name, _, _ in keys}) < len(keys):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, operation, value in keys if value is None and operation != Operation.DELETE]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    unknown = [operation for _, operation, _ in keys if operation not in _OPERATIONS]
    if unknown:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown[0]}")
    return tuple(KeyEdit(name, Operation(operation), value or "") for name, operation, value in keys)


_OPERATIONS = frozenset(map(int, Operation))


def _answer(
    validated: Validated[R],
    ended: DelayedAlterConfigs | None,
    resource_response: Callable[[R, Refused | None], ResourceResponse],
    answer: Callable[[list[ResourceResponse]], object],
) -> Parts[object]:
    results = []
    for resource, owner in validated:
        refused = owner if isinstance(owner, Refused) else ended.refusal(owner) if ended else None
        results.append(resource_response(resource, refused))
        yield
    return answer(results)
