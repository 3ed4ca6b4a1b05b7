"""The wire layout of one version of a message: the schema with its versions resolved.

Readers, writers and `explain` are generated from this. The rules of the protocol are therefore only here: the form of
lengths, tagged fields, nullability, and minimum element sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.wire.schema.primitives import STRING, Primitive
from odradek.wire.schema.schema import Field, Schema, schema_of


@dataclass(frozen=True, slots=True)
class FieldLayout:
    field: Field
    type: Primitive | StructLayout
    is_nullable: bool
    is_compact: bool

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def is_array(self) -> bool:
        return self.field.is_array

    @property
    def is_tagged(self) -> bool:
        """Return whether the field is tagged.

        A null struct is 0 in a tagged field and -1 elsewhere; a non-null struct starts with 1.
        """
        return self.field.life.tag is not None

    @property
    def length_code(self) -> str:
        """Return the struct module's letter for a length that is not compact."""
        return "h" if self.type is STRING and not self.is_array else "i"

    @property
    def bytes_min(self) -> int:
        """Return the minimum size of this field in bytes."""
        if self.is_array or (isinstance(self.type, Primitive) and not self.type.is_fixed):
            return 1 if self.is_compact else {"h": 2, "i": 4}[self.length_code]
        if isinstance(self.type, Primitive):
            return self.type.size
        return 1 if self.is_nullable else self.type.bytes_min

    @property
    def element_bytes_min(self) -> int:
        """Return the minimum size of one array element in bytes, for checking the count."""
        if isinstance(self.type, StructLayout):
            return self.type.bytes_min
        return self.type.size if self.type.is_fixed or not self.is_compact else 1


@dataclass(frozen=True, slots=True)
class StructLayout:
    cls: type
    is_flexible: bool
    fields: tuple[FieldLayout, ...]  # In wire order.
    tagged: tuple[FieldLayout, ...]  # By tag.
    absent: tuple[Field, ...]

    @property
    def bytes_min(self) -> int:
        return sum(each.bytes_min for each in self.fields) + self.is_flexible


def layout(cls: type, version: int) -> StructLayout:
    """Return the layout of one version.

    Raise ValueError for a version that the message never had, TypeError for a class that is not a message.
    """
    schema = schema_of(cls)
    if version not in schema.versions:
        raise ValueError(f"{schema.name} has no version {version}, only {versions_text(schema)}")
    return _struct_layout(schema, cls, version, schema.is_flexible(version))


def versions_text(schema: Schema) -> str:
    first, last = schema.versions[0], schema.versions[-1]
    return str(first) if first == last else f"{first}-{last}"


def _struct_layout(schema: Schema, cls: type, version: int, flexible: bool) -> StructLayout:
    here = [each for each in schema.fields if each.exists_in(version)]
    tagged = sorted((each for each in here if each.is_tagged_in(version)), key=lambda each: each.life.tag or 0)
    assert flexible or not tagged, f"{schema.name} has tagged fields in version {version}, which is not flexible"
    return StructLayout(
        cls,
        flexible,
        tuple(_field_layout(each, version, flexible) for each in here if not each.is_tagged_in(version)),
        tuple(_field_layout(each, version, flexible) for each in tagged),
        tuple(each for each in schema.fields if not each.exists_in(version)),
    )


def _field_layout(field: Field, version: int, flexible: bool) -> FieldLayout:
    kind: Primitive | StructLayout
    if isinstance(field.type, Primitive):
        kind = field.type
    else:
        kind = _struct_layout(schema_of(field.type), field.type, version, flexible)
    return FieldLayout(field, kind, field.is_nullable_in(version), flexible and field.life.flexible)
