"""Payloads of the rig's clients. In: a client's name, the number of its message, a random
generator. Out: bytes; the same seed makes the same bytes.
"""

import json
import math
import random
import struct
from typing import Any, Literal

import cbor2

from hil.formats.senml import (
    BASE_NAME,
    BASE_SUM,
    BASE_TIME,
    BASE_UNIT,
    BASE_VALUE,
    DATA,
    FLAG,
    LABELS,
    NAME,
    SUM,
    TEXT,
    TIME,
    UNIT,
    VALUE,
)

Form = Literal["text", "senml"]
UTC = 1_700_000_000
"""Time of message 0 in seconds since 1970, for payloads that have a time of measurement."""


def payload_of(form: Form, name: str, sequence: int, size: int, rng: random.Random) -> bytes:
    """Return a payload. size: length of a text. The length of SenML depends on its records."""
    return senml_of(name, sequence, rng) if form == "senml" else text_of(name, sequence, size, rng)


def text_of(name: str, sequence: int, size: int, rng: random.Random) -> bytes:
    """Return a text of `size` bytes: the client's name, the message's number, and random digits."""
    head = f"{name} {sequence} ".encode()
    return (head + rng.randbytes(size).hex().encode())[:size]


def senml_of(name: str, sequence: int, rng: random.Random) -> bytes:
    """Return SenML (RFC 8428). Successive messages have different shapes: one record or several,
    with or without base fields, with or without their own time, and values other than numbers.
    Numbers and texts are drawn over the whole range of their types: a float is any of 64 bits.
    """
    mine, at = f"{name}:", UTC + sequence
    value, text = number_of(rng), text_of_all(rng)
    plain = {BASE_NAME: mine, NAME: "t", UNIT: "Cel", VALUE: value}
    several = [
        {BASE_NAME: mine, BASE_TIME: at, BASE_UNIT: "Cel", NAME: "in", VALUE: value},
        {NAME: "out", TIME: -60, VALUE: number_of(rng)},
        {NAME: "rh", UNIT: "%RH", VALUE: 41.5, SUM: number_of(rng)},
    ]
    others = [
        {NAME: f"{name}:open", TIME: at, FLAG: bool(sequence & 8)},
        {NAME: "urn:dev:ow:1", TEXT: f"door {sequence}"},
        {NAME: f"{name}:{LONG_NAME}", TEXT: text},
        {NAME: f"{name}:raw", DATA: rng.randbytes(rng.choice((0, 1, 4, 300)))},
        {NAME: f"{name}:sum", UNIT: "J", SUM: value},
    ]
    based = [
        {
            BASE_NAME: mine,
            BASE_VALUE: 20.1,
            BASE_SUM: 1e-9,
            NAME: "t",
            VALUE: rng.gauss(0, 7),
            SUM: 2,
        },
        {NAME: "e", VALUE: rng.getrandbits(53), SUM: rng.random()},
    ]
    edges = [
        {BASE_NAME: f"{mine}base", BASE_TIME: at + 0.123456, -1: 10, VALUE: 0},
        {TIME: 0.000001, NAME: "", FLAG: False},
        {NAME: "f", TIME: -0.5 - at, VALUE: value},
        *({NAME: f"n{number}", VALUE: number_of(rng)} for number in range(rng.choice((0, 40)))),
    ]
    impossible = [{**plain, VALUE: rng.choice((math.nan, math.inf, -math.inf))}]
    # on both sides of the years that a reading's time may have
    odd = [{**plain, BASE_TIME: bound + rng.choice((-1, 0, 0.5))} for bound in YEARS]
    spelt = {number: label for label, number in LABELS.items()}
    shapes: list[Any] = [
        [{**plain, BASE_TIME: at}],
        several,
        [{**plain, TIME: -12}],
        others,
        [plain],
        json.dumps([{spelt[label]: entry for label, entry in one.items()} for one in several]),
        based,
        json.dumps([{"n": f"{name}:x", "vs": text, "t": at + rng.random()}], ensure_ascii=False),
        impossible,
        edges,
        odd,
        [],
        "",
    ]
    if sequence % 2 == 0:
        return _alike(mine, sequence // ALIKE, at, value, rng)
    shape = shapes[sequence // 2 % len(shapes)]
    return shape.encode() if isinstance(shape, str) else cbor2.dumps(shape)


def _alike(mine: str, block: int, at: int, value: float, rng: random.Random) -> bytes:
    """Return SenML of one record, of the same shape for all messages of a block. So the ingest
    decodes many payloads at once. From block to block, the kind of time, the type of the number,
    and the fields change.
    """
    times: list[dict[int, Any]] = [{BASE_TIME: at}, {}, {TIME: -rng.uniform(0, 60)}]
    times.append({BASE_TIME: YEARS[block % 2 * 2] + at % 2})
    (half,) = struct.unpack(">e", struct.pack(">H", rng.randrange(0x7C00) | 1))
    (single,) = struct.unpack(">f", struct.pack(">f", rng.gauss(0, 7))[:3] + b"\1")
    integers = [rng.randrange(1 << low, 1 << high) for low, high in INTEGERS]
    numbers = [float(value), *integers, half, single]
    number = numbers[block % len(numbers)]
    named = {NAME: f"{mine}t"} if block % 2 else {BASE_NAME: mine, NAME: "t", UNIT: "Cel"}
    # a canonical float has the fewest bytes that keep its value (RFC 8949, section 4.2.2)
    return cbor2.dumps(
        [{**named, VALUE: number, **times[block % len(times)]}], canonical=number in (half, single)
    )


ALIKE = 50
"""Number of messages in a block, of which every second has the block's shape."""
INTEGERS = ((5, 8), (8, 16), (16, 32), (32, 64))
"""Powers of two between which an integer has 1, 2, 4 or 8 bytes in CBOR."""
LONG_NAME = "long/" * 40
YEARS = (500_000_000, 946_684_800, 4_102_444_800)
"""A time in 1985, the begin of 2000, and the end of 2099, in seconds since 1970."""
EDGES: tuple[float, ...] = (
    *(0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1 / 3),
    *(2**24 + 1, 2**31, -(2**31) - 1, 2**53, 2**53 - 1, 1 - 2**53, 2**63 - 1, -(2**63), 2**64 - 1),
)
"""Numbers that change if a narrower type, or an integer instead of a float, carries them."""


def number_of(rng: random.Random) -> float:
    """Return one of `EDGES`, any finite float, or a float as a sensor sends it."""
    match rng.randrange(3):
        case 0:
            return rng.choice(EDGES)
        case 1:
            while not math.isfinite(number := struct.unpack("<d", rng.randbytes(8))[0]):
                pass
            return float(number)
        case _:
            return rng.gauss(0, 1000)


def text_of_all(rng: random.Random) -> str:
    """Return a random text, empty or not: quotes, zeros, and characters of 1 to 4 bytes."""
    characters = 'a"\\\0\n\u00e9\u20ac\U0001f321\U0010fffd'
    return "".join(rng.choices(characters, k=rng.choice((0, 1, 12, 400))))
