#!/usr/bin/env python3
"""Event files of TensorBoard, read from the description of their format alone.

usage: events.py FOLDER               prints the scalars as JSON: {tag: [[step, value], …]}, what was undone left out
       events.py --tensorboard FOLDER the same by TensorBoard's own reader; exit 77 where that is not installed

A record is a length (8 bytes), the masked CRC-32C of these bytes, the data and the masked CRC-32C of the data.
The data is an Event: wall_time 1 (double), step 2, file_version 3, summary 5 { value 1 { tag 1, simple_value 2 } },
session_log 7 { status 1 }. A session that starts drops what earlier files have from its step on.
"""
import glob
import json
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    content, at = open(path, "rb").read(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        data = content[at + 12:at + 12 + length]
        if at + 16 + length > len(content):
            return  # a kill cut it off
        assert struct.unpack_from("<I", content, at + 8)[0] == masked(content[at:at + 8]), "the checksum of a length"
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(data), "the checksum of a record"
        yield data
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of each field: bytes, an int, or the raw bytes of a fixed one."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            length, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value, at = data[at:at + length], at + length
            assert len(value) == length, "a field is cut off"
        yield key >> 3, value


def read(folder):
    scalars = {}
    for path in sorted(glob.glob(os.path.join(folder, "*tfevents*"))):
        for number, record in enumerate(records(path)):
            event = dict(fields(record))
            assert struct.unpack("<d", event[1])[0] > 1.5e9, "wall_time is not a time"
            assert (number == 0) == (3 in event), "the version comes first, and once"
            assert number or event[3] == b"brain.Event:2", event
            assert number != 1 or dict(fields(event[7])) == {1: 1}, "a session starts"
            if 7 in event:
                scalars = {tag: [p for p in points if p[0] < event[2]] for tag, points in scalars.items()}
            for _, value in fields(event.get(5, b"")):
                scalar = dict(fields(value))
                scalars.setdefault(scalar[1].decode(), []).append([event[2], struct.unpack("<f", scalar[2])[0]])
    return scalars


def read_by_tensorboard(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("skipped: TensorBoard is not installed")
        sys.exit(77)
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: [[e.step, e.value] for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--tensorboard":
        found = read_by_tensorboard(sys.argv[2])
    elif len(sys.argv) == 2:
        found = read(sys.argv[1])
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print(json.dumps(found, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
