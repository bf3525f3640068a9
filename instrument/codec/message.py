"""Protobuf messages by a table: encode mappings, and decode untrusted bytes.

Problem: an event file nests some sixty kinds of messages of two dialects. Written by hand, each takes a loop over
numbered fields to read it and a sum of fields to write it, and each loop has its own idea of what damage is.

Strategy: `instrument.codec.schema` lists the messages as text, a line a field. A `MessageType` is compiled from it on
first use, for one purpose: it can skip fields of some types unread, or hand them over as bytes. `encode` writes the
fields in the order in which they are given. `decode` returns a `Message`: a dictionary of the fields that are present,
with accessors of one type each that return protobuf's default for absent ones. Of a field that is there twice the last
value counts, and messages are merged, as protobuf does: encoded messages may be appended to each other. A new kind of
value is a few lines of the table and a function that maps names to its attributes.

Rejected: generated classes, or classes that protobuf makes at run time. Inside a MindSpore process protobuf is its
pure-Python implementation and takes 20 to 75 us an event; it registers the same names as MindSpore; no process may
import it before MindSpore 2.7 to 2.9; it copies arrays; and a few bytes of a hostile file become gigabytes of objects.

What is hot does not come here: scalars, tensors, the head of an event, the buckets of a histogram, and the scan of
whole files (`scalar`, `tensor`, `event`, `histogram`, `outline`) are written by hand upon the same `wire`.

Damage is reported as `CorruptMessage`: a length that reaches past the end, a known field of another wire type, more
than `_MOST_DEPTH` messages in each other, or more fields than `_MOST_BYTES` of memory hold. Unknown fields are skipped.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from instrument.codec import wire
from instrument.codec.scalar import to_float32
from instrument.errors import CorruptMessage

#: What a field may be given as: texts also in UTF-8, messages also encoded. None leaves the field out.
Element = int | float | str | bytes | memoryview | wire.Pieces | Mapping[str, "Value"]
#: The keys and values of a map.
Pairs = Sequence[tuple[str | bytes, Element]]
Value = Element | Sequence[Element] | Pairs | None

#: Protobuf's own limit.
_MOST_DEPTH = 100
#: What a message and a number or short text take in memory at most, and what all of a decoded message may take.
_MESSAGE_BYTES, _FIELD_BYTES, _MOST_BYTES = 600, 200, 48 << 20
#: What a number of a packed field takes by the byte of the file: of a varint, and of a float or double.
_VARINT_BYTES, _FIXED_BYTES = 40, 10
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_T = TypeVar("_T")

_TEXT, _BYTES, _MESSAGE, _MAP, _INT, _UINT, _BOOL, _DOUBLES, _FLOATS, _PACKED, _SKIPPED = range(11)
_KINDS = {
    "string": _TEXT, "bytes": _BYTES, "int32": _INT, "int64": _INT, "uint64": _UINT, "bool": _BOOL, "double": _DOUBLES,
    "float": _FLOATS,
}  # fmt: skip
_WIRE_TYPES = {
    _INT: wire.VARINT, _UINT: wire.VARINT, _BOOL: wire.VARINT, _DOUBLES: wire.FIXED64, _FLOATS: wire.FIXED32,
}  # fmt: skip
_DEFAULTS = {_TEXT: "", _BYTES: b"", _INT: 0, _UINT: 0, _BOOL: False, _DOUBLES: 0.0, _FLOATS: 0.0}


class FieldRow(NamedTuple):
    """A line of the table. The label is optional, required, repeated, packed, map or oneof:NAME.

    The type of a map's values is `type`; its keys are strings.
    """

    label: str
    type: str
    name: str
    number: int


#: Rows by the name of their message.
Table = dict[str, list[FieldRow]]


def parse_table(text: str) -> Table:
    """Return the rows of a table by message, those under `extend` added to the message that stands there."""
    table: Table = {}
    rows: list[FieldRow] = []
    for line in filter(None, text.splitlines()):
        words = line.split()
        if words[0] in ("message", "extend"):
            rows = table.setdefault(words[1], [])
        else:
            rows.append(FieldRow(words[0], words[1], words[2], int(words[3])))
    return table


class Message(dict[str, Any]):
    """The fields of a decoded message that are there, by name; each accessor returns the default for one that is not.

    `bytes` fields are views of what was decoded.
    """

    __slots__ = ()

    def integer(self, name: str) -> int:
        """Return an integer or a bool."""
        value: int = self.get(name, 0)
        return value

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float or a double."""
        value: float = self.get(name, default)
        return value

    def text(self, name: str) -> str:
        """Return a text."""
        value: str = self.get(name, "")
        return value

    def data(self, name: str) -> memoryview:
        """Return the content of a `bytes` field, or of a message that was not decoded."""
        value: memoryview | None = self.get(name)
        return memoryview(b"") if value is None else value

    def message(self, name: str) -> Message:
        """Return a message in this one; one without fields if it is not there."""
        value: Message | None = self.get(name)
        return Message() if value is None else value

    def integers(self, name: str) -> list[int]:
        """Return the integers of a repeated field."""
        return self._repeated(name)

    def numbers(self, name: str) -> list[float]:
        """Return the floats of a repeated field."""
        return self._repeated(name)

    def texts(self, name: str) -> list[str]:
        """Return the texts of a repeated field."""
        return self._repeated(name)

    def buffers(self, name: str) -> list[memoryview]:
        """Return the contents of a repeated `bytes` field, or of messages that were not decoded."""
        return self._repeated(name)

    def messages(self, name: str) -> list[Message]:
        """Return the messages of a repeated field."""
        return self._repeated(name)

    def entries(self, name: str) -> dict[str, Any]:
        """Return a map: values of one type by text."""
        value: dict[str, Any] = self.get(name, {})
        return value

    def _repeated(self, name: str) -> list[_T]:
        value: list[_T] = self.get(name, [])
        return value


class _Field(NamedTuple):
    """A compiled field. `inner` is the type of a message or map entry, `element` the kind of numbers if packed."""

    name: str
    kind: int
    is_repeated: bool
    inner: MessageType
    element: int


class Schema:
    """The message types of one dialect, compiled from the text of a table on first use."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def table(self) -> Table:
        """Return the rows by message."""
        return parse_table(self._text)

    @functools.cache  # noqa: B019 - there are two schemas, which live as long as the process
    def type(
        self, name: str, skip: tuple[str, ...] = (), raw: tuple[str, ...] = (), errors: str = "surrogateescape"
    ) -> MessageType:
        """Return the type of a message.

        Args:
            name: of the message, e.g. "Summary.Image".
            skip: types of fields, e.g. "TensorProto", that are passed over unread, at any depth.
            raw: types of fields that are given and returned as bytes, at any depth.
            errors: what becomes of texts that are not UTF-8; "strict" refuses them.
        """
        types: dict[str, MessageType] = {}
        names = [name]
        for current in names:
            if current not in types:
                types[current] = MessageType(current, errors)
                names += [row.type for row in self.table[current] if row.type in self.table.keys() - {*skip, *raw}]
        for current, message_type in types.items():
            for row in self.table[current]:
                message_type.add(row, types.get(row.type), row.type in skip, row.type in raw)
        return types[name]


class MessageType:
    """Encoder and decoder of one kind of message; `Schema.type` returns it."""

    def __init__(self, name: str, errors: str) -> None:
        self.name = name
        self._errors = errors
        self._by_key: dict[int, _Field] = {}
        self._by_name: dict[str, tuple[bytes, _Field]] = {}
        self._numbers: set[int] = set()

    def add(self, row: FieldRow, inner: MessageType | None, is_skipped: bool, is_raw: bool) -> None:
        """Compile a row of the table; `inner` is the type of a message."""
        kind = _KINDS.get(row.type, _MESSAGE)
        if row.label == "map":
            entry = MessageType(f"{self.name}.{row.name}", self._errors)
            entry.add(FieldRow("optional", "string", "key", 1), None, False, False)
            entry.add(FieldRow("optional", row.type, "value", 2), inner, is_skipped, is_raw)
            kind, inner = _MAP, entry
        if is_skipped:
            kind = _SKIPPED
        elif is_raw:
            kind = _BYTES
        is_repeated = row.label in ("repeated", "packed")
        field = _Field(row.name, kind, is_repeated, inner or self, kind)
        wire_type = _WIRE_TYPES.get(kind, wire.LENGTH_DELIMITED)
        self._by_name[row.name] = wire.key(row.number, wire_type), field
        if is_skipped:
            return
        self._numbers.add(row.number)
        self._by_key[row.number << 3 | wire_type] = field
        if is_repeated and wire_type != wire.LENGTH_DELIMITED:
            packed = _Field(row.name, _PACKED, True, self, kind)
            self._by_key[row.number << 3 | wire.LENGTH_DELIMITED] = packed
            if row.label == "packed":
                self._by_name[row.name] = wire.key(row.number, wire.LENGTH_DELIMITED), packed

    # ------------------------------------------------------------ encode

    def encode(self, **values: Value) -> bytes:
        """Return the message that holds these fields, in their order."""
        return b"".join(self.pieces(values))

    def pieces(self, values: Mapping[str, Value]) -> wire.Pieces:
        """Return the message in pieces, in which large buffers are not copied."""
        out: wire.Pieces = []
        for name, value in values.items():
            if value is None:
                continue
            key, field = self._by_name[name]
            if field.kind == _PACKED:
                value = b"".join([_number(b"", field.element, number) for number in _elements(field, value)])
            elif field.is_repeated or field.kind == _MAP:
                for element in _elements(field, value):
                    _append(out, key, field, element)
                continue
            _append(out, key, field, value)
        return out

    # ------------------------------------------------------------ decode

    def decode(self, data: bytes | memoryview) -> Message:
        """Return the fields of a message.

        Raises:
            CorruptMessage: the bytes are no such message, or would take too much memory.
        """
        return self._decode(data, 0, len(data))

    def each(self, data: bytes | memoryview, name: str) -> Iterator[Message]:
        """Iterate over the messages of a repeated field, one in memory at a time.

        Raises:
            CorruptMessage: as `decode` does.
        """
        key, field = self._by_name[name]
        number, inner = key[0] >> 3, field.inner
        for span in wire.spans(data, 0, len(data)):
            if span[0] == number:
                yield inner._decode(data, *wire.expect(span, wire.LENGTH_DELIMITED))

    def _decode(self, data: bytes | memoryview, start: int, end: int) -> Message:
        if (end - start) * _MESSAGE_BYTES // 2 > _MOST_BYTES:
            self._check_size(data, start, end)
        try:
            return self._read(data, start, end, 0)
        except IndexError:
            raise CorruptMessage(f"a {self.name} message ends within a field") from None
        except UnicodeDecodeError as error:
            raise CorruptMessage(f"a {self.name} message holds a text that is not UTF-8") from error

    def _read(
        self, data: bytes | memoryview, offset: int, end: int, depth: int, earlier: Message | None = None
    ) -> Message:
        """Return the fields in `data[offset:end]`, merged into those of an earlier part of the message.

        An `IndexError` says that the data end within a field.
        """
        if depth > _MOST_DEPTH:
            raise CorruptMessage(f"more than {_MOST_DEPTH} messages stand in each other")
        message = Message() if earlier is None else earlier
        by_key, errors = self._by_key, self._errors
        while offset < end:
            key = data[offset]
            offset += 1
            if key >= 0x80:
                key, offset = wire.read_varint(data, offset - 1)
            wire_type = key & 7
            if wire_type == 2:
                length = data[offset]
                offset += 1
                if length >= 0x80:
                    length, offset = wire.read_varint(data, offset - 1)
                start, offset = offset, offset + length
            elif wire_type == 0:
                number = data[offset]
                offset += 1
                if number >= 0x80:
                    number, offset = wire.read_varint(data, offset - 1)
            elif wire_type == 1:
                start, offset = offset, offset + 8
            elif wire_type == 5:
                start, offset = offset, offset + 4
            else:
                raise CorruptMessage(f"a message holds a field of wire type {wire_type}")
            if offset > end:
                raise CorruptMessage(f"field {key >> 3} of a {self.name} message reaches {offset - end} bytes too far")
            field = by_key.get(key)
            if field is None:
                self._refuse(key)
                continue
            name, kind, is_repeated, inner, element = field
            value: Any
            if kind == _TEXT:
                value = str(data[start:offset], "utf-8", errors)
            elif kind == _MESSAGE:
                if is_repeated or name not in message:
                    value = inner._read(data, start, offset, depth + 1)
                else:
                    value = inner._read(data, start, offset, depth + 1, message[name])
            elif kind == _INT:
                value = number - (1 << 64) if number >= 1 << 63 else number
            elif kind == _BYTES:
                value = memoryview(data)[start:offset]
            elif kind == _DOUBLES:
                value = _DOUBLE.unpack_from(data, start)[0]
            elif kind == _FLOATS:
                value = _FLOAT.unpack_from(data, start)[0]
            elif kind == _BOOL:
                value = number != 0
            elif kind == _UINT:
                value = number
            elif kind == _PACKED:
                message.setdefault(name, []).extend(_unpack(data, start, offset, element))
                continue
            else:
                entry = inner._read(data, start, offset, depth + 1)
                message.setdefault(name, {})[entry.text("key")] = (
                    entry["value"] if "value" in entry else inner.default()
                )
                continue
            if is_repeated:
                message.setdefault(name, []).append(value)
            else:
                message[name] = value
        return message

    def default(self) -> Any:
        """Return the value of a map's entry that has none."""
        field = self._by_name["value"][1]
        return Message() if field.kind == _MESSAGE else _DEFAULTS[field.kind]

    def _refuse(self, key: int) -> None:
        """Raise `CorruptMessage` unless a field may be skipped."""
        if key >> 3 == 0:
            raise CorruptMessage("a message holds a field with number 0")
        if key >> 3 in self._numbers:
            raise CorruptMessage(f"field {key >> 3} of a {self.name} message has wire type {key & 7}")

    def _check_size(self, data: bytes | memoryview, start: int, end: int) -> None:
        """Raise `CorruptMessage` where a message would take far more memory than its bytes do."""
        taken_bytes = 0
        left: list[tuple[int, int, MessageType]] = [(start, end, self)]
        while left:
            *place, current = left.pop()
            for number, wire_type, first, last in wire.spans(data, *place):
                field = current._by_key.get(number << 3 | wire_type)
                if field is None:
                    continue
                taken_bytes += _FIELD_BYTES
                if field.kind in (_MESSAGE, _MAP):
                    taken_bytes += _MESSAGE_BYTES
                    left.append((first, last, field.inner))
                elif field.kind == _PACKED:
                    is_varint = _WIRE_TYPES[field.element] == wire.VARINT
                    taken_bytes += (_VARINT_BYTES if is_varint else _FIXED_BYTES) * (last - first)
                if taken_bytes > _MOST_BYTES:
                    raise CorruptMessage(
                        f"a {self.name} message of {end - start} bytes would take more than {_MOST_BYTES} in memory"
                    )


def _append(out: wire.Pieces, key: bytes, field: _Field, value: Any) -> None:
    """Append a field with one value."""
    if field.kind in _WIRE_TYPES:
        out.append(_number(key, field.kind, value))
        return
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, memoryview)):
        out += (key + wire.varint(len(value)), value)
        return
    parts = value if isinstance(value, list) else field.inner.pieces(value)
    out.append(key + wire.varint(wire.size(parts)))
    out += parts


def _number(key: bytes, kind: int, value: Any) -> bytes:
    if kind == _DOUBLES:
        return key + _DOUBLE.pack(value)
    if kind == _FLOATS:
        return key + _FLOAT.pack(to_float32(value))
    return key + wire.varint(value)


def _elements(field: _Field, value: Any) -> Iterable[Any]:
    """Return what stands one by one in the message: the elements of a repeated field, or the entries of a map."""
    if field.kind == _MAP:  # a mapping, or pairs of keys and values
        pairs = value.items() if isinstance(value, dict) else value
        return [{"key": key, "value": element} for key, element in pairs]
    assert isinstance(value, (list, tuple)), f"{field.name} is repeated"
    return value


def _unpack(data: bytes | memoryview, start: int, end: int, kind: int) -> list[Any]:
    """Return the numbers of a packed field."""
    if kind in (_DOUBLES, _FLOATS):
        name, code, size_bytes = ("float64", "d", 8) if kind == _DOUBLES else ("float32", "f", 4)
        count, rest = divmod(end - start, size_bytes)
        if rest:
            raise CorruptMessage(f"{end - start} bytes are no whole number of {name} values")
        return list(struct.unpack_from(f"<{count}{code}", data, start))
    numbers: list[int] = []
    packed, offset = data[start:end], 0
    while offset < len(packed):
        number, offset = wire.read_varint(packed, offset)
        numbers.append(number if kind == _UINT else number != 0 if kind == _BOOL else wire.signed(number))
    return numbers
