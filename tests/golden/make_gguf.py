#!/usr/bin/python3
"""Makes tests/golden/model.gguf: a GGUF file of version 3 with a value of every type and a tensor of every type that is
read, and one that is not. Usage: make_gguf.py FILE. The numbers come from a small generator, so that the file is the same
everywhere."""
import struct
import sys

state = 1


def draw(n):
    """n bytes."""
    global state
    out = bytearray()
    for _ in range(n):
        state = state * 16807 % 2147483647
        out.append(state >> 8 & 255)
    return bytes(out)


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def half(x):
    return struct.pack("<e", x)


ROWS, COLUMNS = 6, 256
q8 = b"".join(half(0.01 * (i + 1)) + draw(32) for i in range(ROWS * COLUMNS // 32))
q4k = b"".join(half(0.002 * (i + 1)) + half(0.01) + draw(12) + draw(128) for i in range(ROWS))
q6k = b"".join(draw(192 + 16) + half(0.001 * (i + 1)) for i in range(ROWS))
tensors = [
    ("output.weight", (COLUMNS, ROWS), 12, q4k),
    ("output.bias", (ROWS,), 0, struct.pack("<6f", *(0.5 * i for i in range(ROWS)))),
    ("token_embd.weight", (COLUMNS, ROWS), 14, q6k),
    ("blk.0.attn.weight", (COLUMNS, ROWS), 8, q8),
    ("blk.0.half", (3, 2), 1, b"".join(half(x) for x in (1, -2, 0.5, 0, 65504, -0.25))),
    ("blk.0.brain", (2, 2), 30, struct.pack("<4H", 0x3F80, 0xC000, 0x3EAB, 0)),
    ("blk.0.other", (32, 1, 1), 2, draw(18)),
]
tokens = ["<s>", "\u2581the", b"\xff", "\n", "a", "\u2581Stra\u00dfe"]
pairs = [
    pair("general.architecture", 8, string("llama")),
    pair("general.alignment", 4, struct.pack("<I", 64)),
    pair("test.u8", 0, b"\xff"),
    pair("test.i8", 1, b"\xff"),
    pair("test.u16", 2, b"\xff\xff"),
    pair("test.i16", 3, b"\xff\xff"),
    pair("test.i32", 5, struct.pack("<i", -5)),
    pair("test.f32", 6, struct.pack("<f", 0.5)),
    pair("test.bool", 7, b"\x01"),
    pair("test.u64", 10, struct.pack("<Q", 1 << 40)),
    pair("test.i64", 11, struct.pack("<q", -(1 << 40))),
    pair("test.f64", 12, struct.pack("<d", 0.25)),
    pair("test.numbers", 9, array(5, [struct.pack("<i", i) for i in (3, -1, 4)])),
    pair("test.nothing", 9, array(8, [])),
    pair("tokenizer.ggml.tokens", 9, array(8, [string(t) for t in tokens])),
]
head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
offset, data = 0, b""
for name, shape, kind, content in tensors:
    data += bytes(-len(data) % 64)
    head += string(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape)
    head += struct.pack("<IQ", kind, len(data))
    data += content
with open(sys.argv[1], "wb") as out:
    out.write(head + bytes(-len(head) % 64) + data)
