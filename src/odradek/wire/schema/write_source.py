"""Generation of a writer's source: one flat function per message and version.

The function is `def name(out, m, splices)`. Adjacent fields of fixed size are written with one pack, including a
compact length that fits into one byte. In the source, `out` are the bytes so far, `n` is a length in its wire form
(compact: plus one, 0 for null), and `v` is the value being written.

A value that the version can't represent raises ValueError, unless it is the default or the field is ignorable (like
Kafka's UnsupportedVersionException).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack

from odradek.wire.schema.layout import FieldLayout, StructLayout
from odradek.wire.schema.primitives import RECORDS, STRING, STRING_BYTES_MAX, UUID, Primitive
from odradek.wire.schema.source_lines import Source
from odradek.wire.schema.varint import uvarint


def unsupported(cls: str, field: str, version: int) -> ValueError:
    return ValueError(f"{cls}.{field} is not supported in version {version}")


def null_unsupported(cls: str, field: str, version: int) -> ValueError:
    return ValueError(f"{cls}.{field} must not be None in version {version}")


def text_length(n: int, cls: str, field: str) -> bytes:
    """Return the compact length of a text, for lengths of more than one byte."""
    if n > STRING_BYTES_MAX + 1:
        raise ValueError(f"{cls}.{field} is longer than {STRING_BYTES_MAX} bytes")
    return uvarint(n)


def writer_source(layout: StructLayout, name: str, version: int) -> tuple[str, dict[str, object]]:
    """Return the source of `def name(out, m, splices)`, and its global names."""
    source = _WriterSource(version)
    with source.block(f"def {name}(out, m, splices):"):
        source.struct(layout, "m")
        source.flush()
        if not source.has_body:
            source.emit("pass")
    return source.text(), source.names


class _WriterSource(Source):
    def __init__(self, version: int) -> None:
        super().__init__(
            {
                "pack": pack,
                "uvarint": uvarint,
                "unsupported": unsupported,
                "null_unsupported": null_unsupported,
                "text_length": text_length,
            }
        )
        self._version = version
        self._run: list[tuple[str, str]] = []  # Fixed fields not written yet: letter and expression ("" for padding).
        self._out = "out"
        self._owner = ""

    @property
    def has_body(self) -> bool:
        return len(self.lines) > 1

    def put(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def flush(self) -> None:
        if self._run:
            self.emit(f"{self._out} += {self.packed(self._run)}")
            self._run.clear()

    def packed(self, run: list[tuple[str, str]]) -> str:
        if all(code == "x" for code, _ in run):
            return repr(bytes(len(run)))
        arguments = ", ".join(expression for code, expression in run if code != "x")
        return f"{self.struct_call('pack', [code for code, _ in run])}({arguments})"

    def flush_with_varint(self, long_form: str = "uvarint(n)") -> None:
        """Generate writing the pending run and n as a varint: one pack if n fits into one byte."""
        run = self._run
        if run:
            short, long = self.packed([*run, ("B", "n")]), f"{self.packed(run)} + {long_form}"
            self.emit(f"{self._out} += {short} if n < 128 else {long}")
            run.clear()
            return
        with self.block("if n < 128:"):
            self.emit(f"{self._out}.append(n)")
        with self.block("else:"):
            self.emit(f"{self._out} += {long_form}")

    def struct(self, layout: StructLayout, variable: str) -> None:
        owner, self._owner = self._owner, layout.cls.__name__
        for each in layout.absent:
            if not each.life.ignorable:
                with self.block(f"if {self.differs(f'{variable}.{each.name}', self.default_of(each, layout.cls))}:"):
                    self.emit(f"raise unsupported({self._owner!r}, {each.name!r}, {self._version})")
        for field in layout.fields:
            self.value(field, f"{variable}.{field.name}")
        if layout.is_flexible:
            self.tags(layout, variable)
        self._owner = owner

    def differs(self, value: str, default: str) -> str:
        if default in ("[]", "''", "b''", "0", "False"):
            # None differs from a default of "" or [] too.
            return value if default in ("0", "False") else f"{value} or {value} is None"
        if default in ("None", "True"):
            return f"{value} is not {default}"
        if default.startswith("DEFAULT_"):
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def value(self, field: FieldLayout, expression: str) -> None:
        if field.is_array:
            self.array(field, expression)
        elif isinstance(field.type, StructLayout):
            self.nested(field, field.type, expression)
        elif field.type.is_fixed:
            self.put(field.type.code, expression)
        elif field.type is RECORDS:
            self.records(field, expression)
        else:
            self.sized(field, field.type, expression)

    def nested(self, field: FieldLayout, layout: StructLayout, expression: str) -> None:
        variable = self.variable("m")
        self.emit(f"{variable} = {expression}")
        if not field.is_nullable:
            self.refuse_null(field, variable)
            self.struct(layout, variable)
            return
        self.flush()
        with self.block(f"if {variable} is None:"):
            self.emit(f"{self._out}.append({0 if field.is_tagged else 255})")
        with self.block("else:"):
            self.put("b", "1")
            self.struct(layout, variable)
            self.flush()

    def refuse_null(self, field: FieldLayout, variable: str) -> None:
        """Generate a null check if other versions allow null; otherwise the type excludes it."""
        if field.field.is_optional and not field.is_nullable:
            with self.block(f"if {variable} is None:"):
                self.emit(f"raise null_unsupported({self._owner!r}, {field.name!r}, {self._version})")

    def length(self, name: str, code: str, size: str, is_compact: bool) -> None:
        """Generate writing a length with the expression `size`; `code` is the letter of a non-compact length."""
        if not is_compact:
            self.put(code, size)
            self.flush()
            return
        self.emit(f"n = {size} + 1")
        self.flush_with_varint(f"text_length(n, {self._owner!r}, {name!r})" if code == STRING.code else "uvarint(n)")

    @contextmanager
    def unless_null(self, field: FieldLayout, variable: str) -> Iterator[None]:
        """Generate writing null for None; lines generated within are for other values.

        These lines also start with the pending run.
        """
        if not field.is_nullable:
            self.refuse_null(field, variable)
            yield
            return
        pending = list(self._run)
        with self.block(f"if {variable} is None:"):
            self.put("x" if field.is_compact else field.length_code, "" if field.is_compact else "-1")
            self.flush()
        self._run = pending
        with self.block("else:"):
            yield
            self.flush()

    def sized(self, field: FieldLayout, kind: Primitive, expression: str) -> None:
        self.emit(f"v = {expression}")
        with self.unless_null(field, "v"):
            self.sized_value(field, kind, field.length_code, "v")

    def sized_value(self, field: FieldLayout, kind: Primitive, code: str, value: str) -> None:
        self.emit(f"s = {value}.encode()" if kind is STRING else f"s = {value}")
        self.length(field.name, code, "len(s)", field.is_compact)
        self.emit(f"{self._out} += s")

    def records(self, field: FieldLayout, expression: str) -> None:
        assert self._out == "out", "a tagged field must not contain a splice"
        self.emit(f"v = {expression}")
        with self.unless_null(field, "v"):
            self.emit("is_copied = type(v) is memoryview or type(v) is bytes or type(v) is bytearray")
            self.length(field.name, field.length_code, "(len(v) if is_copied else v.size)", field.is_compact)
            with self.block("if is_copied:"):
                self.emit("out += v")
            with self.block("else:"):
                self.emit("splices.append((len(out), v))")

    def array(self, field: FieldLayout, expression: str) -> None:
        items = self.variable("items")
        self.emit(f"{items} = {expression}")
        with self.unless_null(field, items):
            self.length(field.name, field.length_code, f"len({items})", field.is_compact)
            self.elements(field, items)

    def elements(self, field: FieldLayout, items: str) -> None:
        kind = field.type
        if isinstance(kind, Primitive) and kind.is_fixed:
            packed = f"b''.join({items})" if kind is UUID else f"pack('>%d{kind.code}' % len({items}), *{items})"
            with self.block(f"if {items}:"):
                self.emit(f"{self._out} += {packed}")
            return
        variable = self.variable("m")
        with self.block(f"for {variable} in {items}:"):
            if isinstance(kind, StructLayout):
                self.struct(kind, variable)
            else:
                self.sized_value(field, kind, kind.code, variable)
            self.flush()

    def tags(self, layout: StructLayout, variable: str) -> None:
        if not layout.tagged:
            self.put("x", "")
            return
        flags = []
        for each in layout.tagged:
            flag = self.variable("has")
            default = self.default_of(each.field, layout.cls)
            self.emit(f"{flag} = {self.flag(f'{variable}.{each.name}', default)}")
            flags.append(flag)
        self.emit(f"n = {' + '.join(flags)}")
        self.flush_with_varint()
        with self.block("if n:"):
            for flag, each in zip(flags, layout.tagged, strict=True):
                with self.block(f"if {flag}:"):
                    self.tagged_value(each, f"{variable}.{each.name}")

    def flag(self, value: str, default: str) -> str:
        """Return an expression that is exactly True or False, because the flags are added."""
        return self.differs(value, default) if "DEFAULT" in default or default == "None" else f"{value} != {default}"

    def tagged_value(self, field: FieldLayout, expression: str) -> None:
        outer, self._out = self._out, self.variable("tagged")
        self.emit(f"{self._out} = bytearray()")
        self.value(field, expression)
        self.flush()
        inner, self._out = self._out, outer
        self.emit(f"{outer} += uvarint({field.field.life.tag}) + uvarint(len({inner})) + {inner}")
