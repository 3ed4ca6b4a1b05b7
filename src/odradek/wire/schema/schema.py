"""Schemas as class bodies: one typed class per message or struct, for all its versions.

    @struct
    class PartitionProduceResponse:
        index: Int32
        base_offset: Int64
        log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)

A marker defines the versions of a field. A field without a marker exists in every version of its container. The order
of the class body is the order on the wire. Classes get slots, a keyword constructor, == and a short repr.

The flexible versions are defined by the message, not by its structs. Arrays default to a new list. A struct as default
is shared and rejects assignment, so that reading an absent field costs nothing and can't affect other messages.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from odradek.wire.schema.primitives import Primitive

T = TypeVar("T")
Kind = Literal["request", "response", "header", "data", "coordinator-key", "coordinator-value", "metadata"]


# Tagged fields from this tag on are Odradek's own. Kafka numbers the tags of each message from 0. Receivers skip
# unknown tags (KIP-482), and these are only sent to peers that requested them with such a tag.
OWN_TAGS_FROM = 10_000


class Required:
    """The default of a field without a default: the constructor requires a value."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = Required()


@dataclass(frozen=True, slots=True)
class Marker:
    """The versions and properties of a field, which `field` and `since` put into the class body.

    Versions are inclusive; None means unlimited, or the same as the field.
    """

    default: object = REQUIRED
    default_factory: Callable[[], object] | None = None
    since: int = 0
    until: int | None = None
    nullable_since: int | None = None
    nullable_until: int | None = None
    tag: int | None = None
    tag_since: int | None = None
    ignorable: bool = False
    flexible: bool = True


@overload
def field(
    *,
    default: T,
    until: int | None = None,
    nullable_since: int | None = None,
    nullable_until: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...
@overload
def field(
    *,
    default_factory: Callable[[], T],
    until: int | None = None,
    nullable_since: int | None = None,
    nullable_until: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...
@overload
def field(
    *,
    nullable_since: int | None = None,
    nullable_until: int | None = None,
    flexible: bool = True,
) -> Any: ...
def field(**life: Any) -> Any:
    """Declare a field that exists from version 0.

    ignorable: in a version without the field, a value other than the default is omitted instead of an error.
    flexible: False keeps the old form of the length in flexible versions (only for the client id of a header).
    """
    return Marker(**life)


@overload
def since(
    version: int,
    *,
    default: T,
    until: int | None = None,
    nullable_since: int | None = None,
    nullable_until: int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...
@overload
def since(
    version: int,
    *,
    default_factory: Callable[[], T],
    until: int | None = None,
    nullable_since: int | None = None,
    nullable_until: int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> T: ...
def since(version: int, **life: Any) -> Any:
    """Declare a field that exists from `version` on; in other versions it reads as its default."""
    return Marker(since=version, **life)


@dataclass(frozen=True, slots=True)
class Field:
    """One resolved field of a struct."""

    name: str
    type: Primitive | type
    is_array: bool
    is_optional: bool
    life: Marker

    @property
    def is_required(self) -> bool:
        return self.life.default is REQUIRED and self.life.default_factory is None

    def exists_in(self, version: int) -> bool:
        return self.life.since <= version and (self.life.until is None or version <= self.life.until)

    def is_nullable_in(self, version: int) -> bool:
        first = self.life.since if self.life.nullable_since is None else self.life.nullable_since
        last = self.life.nullable_until
        return self.is_optional and first <= version and (last is None or version <= last)

    def is_tagged_in(self, version: int) -> bool:
        first = self.life.since if self.life.tag_since is None else self.life.tag_since
        return self.life.tag is not None and version >= first

    @property
    def default(self) -> object:
        """Return the value of the field in versions without it.

        It is None, a number, text, bytes, a shared struct or a new list.
        """
        if not isinstance(self.life.default, Required):
            return self.life.default
        if self.is_array:
            return []
        return self.type.zero if isinstance(self.type, Primitive) else default_instance(self.type)


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a class; the last four fields are only for whole messages."""

    name: str
    fields: tuple[Field, ...]
    kind: Kind | None = None
    api_key: int | None = None
    versions: range = range(0)
    flexible_from: int | None = None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


_SCHEMAS: dict[type, Schema] = {}
_DEFAULT_INSTANCES: dict[type, object] = {}


def schema_of(cls: type) -> Schema:
    """Return the schema of a class; raise TypeError unless it was made by `struct` or `message`."""
    schema = _SCHEMAS.get(_public(cls))
    if schema is None:
        raise TypeError(f"{cls.__name__} is not a message class")
    return schema


@dataclass_transform(kw_only_default=True, field_specifiers=(field, since))
def struct(cls: type[T]) -> type[T]:
    """Make a class a part of messages."""
    return _build(cls, Schema(cls.__name__, _fields_of(cls)))


@dataclass_transform(kw_only_default=True, field_specifiers=(field, since))
def message(
    *, kind: Kind, versions: tuple[int, int], flexible_from: int | None, api_key: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Make a class a whole message; `versions` are the first and last version that ever existed."""

    def decorate(cls: type[T]) -> type[T]:
        numbers = range(versions[0], versions[1] + 1)
        return _build(cls, Schema(cls.__name__, _fields_of(cls), kind, api_key, numbers, flexible_from))

    return decorate


def default_instance(cls: type) -> object:
    """Return the struct with all defaults; it is shared, so assigning to it raises an error."""
    if cls not in _DEFAULT_INSTANCES:

        def refuse(self: object, name: str, value: object) -> None:
            raise AttributeError(f"a default {cls.__name__} is shared: create a new one to set {name}")

        frozen = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": refuse, "__module__": cls.__module__})
        instance: object = object.__new__(frozen)
        for each in schema_of(cls).fields:
            object.__setattr__(instance, each.name, each.default)
        _DEFAULT_INSTANCES[cls] = instance
    return _DEFAULT_INSTANCES[cls]


def maker(cls: type[T]) -> type[T]:
    """Return the constructor of `cls` as a plain function, for the hot path: 60% of the cost of a call.

    The function is typed as the class, so that its arguments are checked, but is not a class (no isinstance).
    """
    space: dict[str, object] = {"cls": cls, "new": object.__new__}
    signature, stores = _constructor_lines(schema_of(cls), space)
    body = ["    self = new(cls)", *stores, "    return self"]
    _execute(f"def make({signature}):\n" + "\n".join(body), space)
    return cast(type[T], space["make"])


def _fields_of(cls: type) -> tuple[Field, ...]:
    annotations = get_type_hints(cls, include_extras=True)
    return tuple(_field(name, annotation, vars(cls).get(name)) for name, annotation in annotations.items())


def _field(name: str, annotation: object, marker: object) -> Field:
    life = marker if isinstance(marker, Marker) else Marker()
    if marker is not None and not isinstance(marker, Marker):
        raise TypeError(f"{name}: set the default with field(default=...)")
    annotation, is_optional = _without_none(annotation)
    is_array = get_origin(annotation) is list
    if is_array:
        (annotation,) = get_args(annotation)
    return Field(name, _wire_type(name, annotation), is_array, is_optional, life)


def _without_none(annotation: object) -> tuple[object, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    kept = [each for each in get_args(annotation) if each is not type(None)]
    if len(kept) != 1:
        raise TypeError(f"{annotation} is not a field type: only unions with None are supported")
    return kept[0], True


def _wire_type(name: str, annotation: object) -> Primitive | type:
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, Primitive):
                return extra
    if isinstance(annotation, type) and annotation in _SCHEMAS:
        return annotation
    raise TypeError(f"{name}: {annotation} is neither a primitive of the protocol nor a struct")


def _build(cls: type[T], schema: Schema) -> type[T]:
    """Recreate the class with slots, which can't be added to an existing class."""
    names = tuple(each.name for each in schema.fields)
    body = {key: value for key, value in vars(cls).items() if key not in (*names, "__dict__", "__weakref__")}
    body |= {"__slots__": names, "__init__": _constructor(schema), "__hash__": None}
    body |= {"__eq__": _equality(names), "__repr__": _repr}
    built = cast(type[T], type(cls.__name__, cls.__bases__, body))
    _SCHEMAS[built] = schema
    return built


def _constructor(schema: Schema) -> Callable[..., None]:
    """Return a constructor that is compiled on its first call, because a process uses few of all classes."""

    def first(self: object, **values: object) -> None:
        made = _made_constructor(schema)
        _public(type(self)).__init__ = made  # type: ignore[misc]
        made(self, **values)

    return first


def _made_constructor(schema: Schema) -> Callable[..., None]:
    space: dict[str, object] = {}
    signature, stores = _constructor_lines(schema, space)
    comma = ", " if signature else ""
    _execute(f"def __init__(self{comma}{signature}):\n" + "\n".join(stores or ["    pass"]), space)
    constructor = cast(types.FunctionType, space["__init__"])
    constructor.__qualname__ = f"{schema.name}.__init__"
    return constructor


def _constructor_lines(schema: Schema, space: dict[str, object]) -> tuple[str, list[str]]:
    """Return the parameters and the lines that store them; put the defaults into `space`."""
    space["ABSENT"] = REQUIRED
    parameters, stores = [], []
    for each in schema.fields:
        value, parameter = each.name, each.name
        if not each.is_required and isinstance(each.default, list):
            parameter = f"{each.name}=ABSENT"
            value = f"[] if {each.name} is ABSENT else {each.name}"
        elif not each.is_required:
            space[f"DEFAULT_{each.name}"] = each.default
            parameter = f"{each.name}=DEFAULT_{each.name}"
        parameters.append(parameter)
        stores.append(f"    self.{each.name} = {value}")
    return ", ".join(["*", *parameters] if parameters else []), stores


def _equality(names: tuple[str, ...]) -> Callable[[object, object], bool]:
    values = attrgetter(*names) if names else type

    def equal(self: object, other: object) -> bool:
        # A shared default is an instance of a hidden subclass, and equals an instance of the public class.
        return _public(type(self)) is _public(type(other)) and bool(values(self) == values(other))

    return equal


def _repr(self: object) -> str:
    names = [each.name for each in schema_of(type(self)).fields]
    values = (f"{name}={_short(getattr(self, name, '(unset)'))}" for name in names)
    return f"{type(self).__name__}({', '.join(values)})"


def _short(value: object) -> str:
    return (
        f"<{len(value)} bytes>"
        if isinstance(value, bytes | bytearray | memoryview) and len(value) > 16
        else repr(value)
    )


def _public(cls: type) -> type:
    """Return the class itself, or the public class of a shared default's class."""
    return cls if cls in _SCHEMAS or not cls.__bases__ else cls.__bases__[0]


def _execute(text: str, space: dict[str, Any]) -> None:
    # Compiled first: after a Ctrl-C during exec() of a text, CPython 3.11 ends by the signal even if it is handled.
    exec(compile(text, "<odradek.wire schema>", "exec"), space)
