"""Reads scalars from the event files of TensorBoard, without TensorBoard.

A file is a row of records: the length (8 bytes, little-endian), its checksum (4), the data, its checksum (4). The data
is a protocol buffer, `Event`: wall_time = 1, step = 2, summary = 5 with values = 1, each with tag = 1 and
simple_value = 2 or a tensor = 8 (dtype = 1, tensor_content = 4, float_val = 5, double_val = 6).

Source: event.proto, summary.proto and tensor.proto of TensorBoard; record_writer of TensorFlow.
"""

import contextlib
import dataclasses
import struct
from collections.abc import Iterator

_MAX_RECORD = 64 << 20  # a longer one is no record
_FLOAT, _DOUBLE = 1, 2  # of a tensor's dtype


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """One logged number."""

    tag: str
    step: int
    wall_time: float
    value: float


def scalars(data: bytes) -> tuple[list[Scalar], int]:
    """Returns the scalars of the whole records at the beginning of `data`, and how many bytes those are.

    A record that cannot be read is skipped. Where a length makes no sense, the rest is.
    """
    found: list[Scalar] = []
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        if length > _MAX_RECORD:
            return found, len(data)
        end = position + 12 + length + 4
        if end > len(data):
            break
        with contextlib.suppress(ValueError, struct.error, IndexError, TypeError):
            found += _event(data[position + 12 : end - 4])
        position = end
    return found, position


def _event(data: bytes) -> list[Scalar]:
    wall_time, step, values = 0.0, 0, list[bytes]()
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            (wall_time,) = struct.unpack("<d", value)
        elif field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            values += [one for number, one in _fields(value) if number == 1 and isinstance(one, bytes)]
    found = []
    for one in values:
        tag, number = "", None
        for field, value in _fields(one):
            if not isinstance(value, bytes):
                continue
            if field == 1:
                tag = value.decode(errors="replace")
            elif field == 2:
                (number,) = struct.unpack("<f", value)
            elif field == 8:
                number = _tensor(value)
        if number is not None:
            found.append(Scalar(tag, step, wall_time, float(number)))
    return found


def _tensor(data: bytes) -> float | None:
    """Returns the number of a tensor that holds a single float."""
    kind, content, single, double = 0, b"", b"", b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif isinstance(value, bytes):
            content = value if field == 4 else content
            single = value if field == 5 else single
            double = value if field == 6 else double
    size, form = (4, "<f") if kind == _FLOAT else (8, "<d")
    raw = content or (single if kind == _FLOAT else double)
    if kind not in (_FLOAT, _DOUBLE) or len(raw) != size:
        return None
    return float(struct.unpack(form, raw)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and the raw value of every field of a protocol buffer."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == 2:
            size, position = _varint(data, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if position + size > len(data):
            raise ValueError("a field is cut short")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
