"""What the rig's clients publish. In: a client's name, the number of its message, a source of
chance. Out: bytes; the same source makes the same bytes.
"""

import json
import random
from typing import Any, Literal

import cbor2

from hil.formats.senml import (
    BASE_NAME,
    BASE_TIME,
    BASE_UNIT,
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
"""Of message 0, for those that tell when they were measured."""


def payload_of(form: Form, name: str, sequence: int, size: int, rng: random.Random) -> bytes:
    """size: of a text, in bytes; SenML is as long as its records are."""
    return senml_of(name, sequence, rng) if form == "senml" else text_of(name, sequence, size, rng)


def text_of(name: str, sequence: int, size: int, rng: random.Random) -> bytes:
    """Text that says whose it is, filled up with random digits."""
    head = f"{name} {sequence} ".encode()
    return (head + rng.randbytes(size).hex().encode())[:size]


def senml_of(name: str, sequence: int, rng: random.Random) -> bytes:
    """SenML (RFC 8428), each time in the next of some shapes: one record or several, with base
    fields or without, a time of its own or none, numbers below zero, and what is no number.
    """
    mine, at = f"{name}:", UTC + sequence
    value = rng.randrange(-(1 << 24), 1 << 24) / 64
    plain = {BASE_NAME: mine, NAME: "t", UNIT: "Cel", VALUE: value}
    several = [
        {BASE_NAME: mine, BASE_TIME: at, BASE_UNIT: "Cel", NAME: "in", VALUE: value},
        {NAME: "out", TIME: -60, VALUE: -value},
        {NAME: "rh", UNIT: "%RH", VALUE: 41.5, SUM: 12.25},
    ]
    others = [
        {NAME: f"{name}:open", TIME: at, FLAG: bool(sequence & 8)},
        {NAME: "urn:dev:ow:1", TEXT: f"door {sequence}"},
        {NAME: f"{name}:raw", DATA: rng.randbytes(4)},
        {NAME: f"{name}:sum", UNIT: "J", SUM: value},
    ]
    spelt = {number: label for label, number in LABELS.items()}
    shapes: list[Any] = [
        [{**plain, BASE_TIME: at}],
        several,
        [{**plain, TIME: -12}],
        others,
        [plain],
        json.dumps([{spelt[label]: said for label, said in one.items()} for one in several]),
    ]
    shape = shapes[sequence % len(shapes)]
    return shape.encode() if isinstance(shape, str) else cbor2.dumps(shape)
