"""Event files of TensorBoard, written without it: in an instant, and with the times that a test gives.

Source of the checksums: masked CRC-32C, as in record_writer of TensorFlow.
"""

import struct
from pathlib import Path


def record(tag: str, step: int, value: float, at: float) -> bytes:
    """Returns a scalar as a record of an event file."""
    scalar = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    event = b"\x09" + struct.pack("<d", at) + b"\x10" + _varint(step) + _field(5, _field(1, scalar))
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def write(folder: Path, name: str, tag: str, points: list[tuple[int, float]], *, at: float = 0.0) -> None:
    """Appends scalars to an event file, a second apart from each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"events.out.tfevents.{name}").open("ab") as file:
        for number, (step, value) in enumerate(points):
            file.write(record(tag, step, value, at + number))


def _checksum(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
