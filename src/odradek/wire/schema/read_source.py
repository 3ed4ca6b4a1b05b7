"""Generation of a reader's source: one flat function per message and version.

Adjacent fields of fixed size are read with one unpack_from, together with the first byte of the following length or tag
count. Structs are read inline; an object is created without its constructor, and its slots are filled. In the source,
`data` are the bytes, `at` is the position, `limit` the end, `left` the number of permitted further array elements and
tagged fields of this message, and `n` the last length or count.

A length is checked against the remaining bytes before it is used. Fields of fixed size need no check: reading beyond
the end raises an error, which becomes Malformed.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterator
from contextlib import contextmanager
from struct import error as struct_error
from struct import unpack_from

from odradek.base.limits import DECODED_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from odradek.wire.schema import malformed as errors
from odradek.wire.schema import varint
from odradek.wire.schema.layout import FieldLayout, StructLayout
from odradek.wire.schema.primitives import BYTES, RECORDS, STRING, STRING_BYTES_MAX, UUID, Primitive
from odradek.wire.schema.schema import schema_of
from odradek.wire.schema.source_lines import Source, bytes_of


def reader_source(layout: StructLayout, name: str) -> tuple[str, dict[str, object]]:
    """Return the source of `def name(data, at, left)`, and its global names."""
    source = _ReaderSource()
    is_from_client = schema_of(layout.cls).kind in ("request", "data")
    elements_max = REQUEST_ELEMENTS_MAX if is_from_client else DECODED_ELEMENTS_MAX
    with source.block(f"def {name}(data, at, left={elements_max}):"):
        source.whole(layout)
    return source.text(), source.names


class _ReaderSource(Source):
    def __init__(self) -> None:
        super().__init__(
            {
                "struct_error": struct_error,
                "Malformed": errors.Malformed,
                "array_too_long": errors.array_too_long,
                "cut_short": errors.cut_short,
                "string_too_long": errors.string_too_long,
                "null_refused": errors.null_refused,
                "tag_mismatch": errors.tag_mismatch,
                "read_uvarint": varint.read_uvarint,
                "read_tag": varint.read_tag,
                "read_tag_count": varint.read_tag_count,
                "skip_tags": varint.skip_tags,
                "new": object.__new__,
                "unpack_from": unpack_from,
                "utf8": utf_8_decode,
            }
        )
        self._run: list[tuple[str, str]] = []  # Fixed fields not read yet: letter and target.

    def whole(self, layout: StructLayout) -> None:
        self.emit("data = data if type(data) is memoryview else memoryview(data)")
        self.emit("limit = len(data)")
        with self.block("try:"):
            self.struct(layout, "m")
            self.flush()
        with self.block("except (IndexError, struct_error):"):
            self.emit(f'raise Malformed("{layout.cls.__name__} is truncated") from None')
        self.emit("return m, at")

    def add_read(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def flush(self) -> None:
        if not self._run:
            return
        codes = [code for code, _ in self._run]
        targets = ", ".join(target for _, target in self._run)
        if codes == ["B"]:
            self.emit(f"{targets} = data[at]")
        else:
            comma = "," if len(codes) == 1 else ""
            self.emit(f"{targets}{comma} = {self.struct_call('unpack_from', codes)}(data, at)")
        self.emit(f"at += {bytes_of(codes)}")
        self._run.clear()

    def struct(self, layout: StructLayout, variable: str) -> None:
        self.emit(f"{variable} = new({self.name_of(layout.cls)})")
        for each in layout.absent:
            self.emit(f"{variable}.{each.name} = {self.default_of(each, layout.cls)}")
        for present in layout.fields:
            self.value(present, f"{variable}.{present.name}")
        if layout.is_flexible:
            self.tags(layout, variable)

    def value(self, field: FieldLayout, target: str) -> None:
        if field.is_array:
            self.array(field, target)
        elif isinstance(field.type, StructLayout):
            self.nested(field, field.type, target)
        elif field.type.is_fixed:
            self.add_read(field.type.code, target)
        else:
            self.sized(field, field.type, target)

    def nested(self, field: FieldLayout, layout: StructLayout, target: str) -> None:
        if not field.is_nullable:
            variable = self.variable("m")
            self.struct(layout, variable)
            self.emit(f"{target} = {variable}")
            return
        self.add_read("b", "n")
        self.flush()
        with self.block(f"if n < {1 if field.is_tagged else 0}:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            variable = self.variable("m")
            self.struct(layout, variable)
            self.flush()
            self.emit(f"{target} = {variable}")

    def length(self, name: str, code: str, is_compact: bool) -> None:
        """Generate reading a length into n, negative for null; `code` is the letter of a non-compact length."""
        self.add_read("B" if is_compact else code, "n")
        self.flush()
        if not is_compact:
            return
        with self.block("if n > 127:"):
            self.emit("n, at = read_uvarint(data, at - 1)")
            if code == STRING.code:
                with self.block(f"if n > {STRING_BYTES_MAX + 1}:"):
                    self.emit(f'raise string_too_long("{name}", n - 1, limit - at)')
        self.emit("n -= 1")

    @contextmanager
    def unless_null(self, field: FieldLayout, target: str) -> Iterator[None]:
        """Generate the handling of a negative length; lines generated within are for other lengths."""
        if not field.is_nullable:
            with self.block("if n < 0:"):
                self.emit(f'raise null_refused("{field.name}")')
            yield
            return
        with self.block("if n < 0:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            yield

    def sized(self, field: FieldLayout, kind: Primitive, target: str) -> None:
        self.length(field.name, field.length_code, field.is_compact)
        with self.unless_null(field, target):
            self.sized_value(field.name, kind, target)

    def sized_value(self, name: str, kind: Primitive, target: str) -> None:
        self.emit("end = at + n")
        with self.block("if end > limit:"):
            self.emit(f'raise cut_short("{name}", n, limit - at)')
        # Kafka also decodes invalid UTF-8 to U+FFFD, and then rejects the name.
        parts = {STRING: 'utf8(data[at:end], "replace")[0]', BYTES: "bytes(data[at:end])", RECORDS: "data[at:end]"}
        self.emit(f"{target} = {parts[kind]}")
        self.emit("at = end")

    def array(self, field: FieldLayout, target: str) -> None:
        self.length(field.name, field.length_code, field.is_compact)
        with self.unless_null(field, target):
            least = field.element_bytes_min
            assert least > 0, f"{field.name}: the count of elements without bytes is unbounded"
            with self.block(f"if n > left or n{f' * {least}' if least > 1 else ''} > limit - at:"):
                self.emit(f'raise array_too_long("{field.name}", n, limit - at)')
            self.emit("left -= n")
            self.elements(field, target)

    def elements(self, field: FieldLayout, target: str) -> None:
        kind = field.type
        if isinstance(kind, Primitive) and kind.is_fixed:
            if kind is UUID:
                self.emit(f"{target} = [bytes(data[i : i + 16]) for i in range(at, at + n * 16, 16)]")
            else:
                # The struct module caches its compiled formats, and this one is as small as its text.
                self.emit(f'{target} = list(unpack_from(">%d{kind.code}" % n, data, at))')
            self.emit(f"at += n{f' * {kind.size}' if kind.size > 1 else ''}")
            return
        items, count = self.variable("items"), self.variable("count")
        self.emit(f"{target} = {items} = []")
        self.emit(f"{count} = n")
        # Most arrays have one or a few elements; for them, this costs a fifth of a range.
        with self.block(f"while {count}:"):
            self.emit(f"{count} -= 1")
            if isinstance(kind, StructLayout):
                variable = self.variable("m")
                self.struct(kind, variable)
                self.flush()
                self.emit(f"{items}.append({variable})")
            else:
                self.element(field, kind, items)

    def element(self, field: FieldLayout, kind: Primitive, items: str) -> None:
        self.length(field.name, kind.code, field.is_compact)
        with self.block("if n < 0:"):
            self.emit(f'raise null_refused("{field.name}")')
        self.sized_value(field.name, kind, "item")
        self.emit(f"{items}.append(item)")

    def tags(self, layout: StructLayout, variable: str) -> None:
        self.add_read("B", "n")
        self.flush()
        for each in layout.tagged:
            self.emit(f"{variable}.{each.name} = {self.default_of(each.field, layout.cls)}")
        with self.block("if n:"):
            if not layout.tagged:
                self.emit("at, left = skip_tags(data, at - 1, left)")
                return
            count = self.variable("tags")
            self.emit(f"{count}, at = read_tag_count(data, at - 1, left)")
            self.emit(f"left -= {count}")
            with self.block(f"for _ in range({count}):"):
                self.tag(layout, variable)

    def tag(self, layout: StructLayout, variable: str) -> None:
        stop, start = self.variable("stop"), self.variable("start")
        self.emit(f"tag, at, {stop} = read_tag(data, at)")
        self.emit(f"{start} = at")
        word = "if"
        for each in layout.tagged:
            with self.block(f"{word} tag == {each.field.life.tag}:"):
                self.value(each, f"{variable}.{each.name}")
                self.flush()
                with self.block(f"if at != {stop}:"):
                    self.emit(f'raise tag_mismatch("{each.name}", {stop} - {start}, at - {start})')
            word = "elif"
        with self.block("else:"):
            self.emit(f"at = {stop}")
