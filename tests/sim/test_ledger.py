"""The ledger, compared with a model of the journal: whatever is torn, the ledger has exactly the
publications that were complete in the EEPROM.
"""

from binascii import crc_hqx
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from hil.boards.ledger import EEPROM_SIZE, Ledger, Start, Write, read_log

SLOTS_AT, SLOTS, SLOT_SIZE = 0x040, 60, 16


def sealed(record: bytes) -> bytes:
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def slot_bytes(sequence: int, source: bytes, released: bool = False, done: bool = False) -> bytes:
    marks = (
        (sequence ^ 0x55) & 0xFF if released else 0xFF,
        (sequence ^ 0xAA) & 0xFF if done else 0xFF,
    )
    return sealed(sequence.to_bytes(4) + source) + bytes(marks)


def writes_of(slot: int, content: bytes, backwards: bool = False) -> list[Write]:
    at = SLOTS_AT + slot * SLOT_SIZE
    writes = [Write(cycle=0, address=at + i, value=byte) for i, byte in enumerate(content)]
    return writes[::-1] if backwards else writes


def source(number: int) -> bytes:
    return number.to_bytes(8)


# One attempt to write a slot: byte at which the power fails (None: it does not), value of the torn
# cell, and whether the slot is written backwards.
attempts = st.lists(
    st.tuples(st.none() | st.integers(0, SLOT_SIZE - 1), st.integers(0, 255), st.booleans()),
    max_size=200,
)


@given(attempts)
def test_torn_slots_are_no_publications_and_whole_ones_always_are(
    attempts: list[tuple[int | None, int, bool]],
) -> None:
    """The model uses 60 slots in turn. If an attempt to write a slot fails, the next attempt uses
    the same slot and the same sequence.
    """
    image = bytearray(b"\xff" * EEPROM_SIZE)
    ledger, expected, sequence, slot = Ledger(), [], 1, 0
    for number, (cut, torn, backwards) in enumerate(attempts):
        writes = writes_of(slot, slot_bytes(sequence, source(number)), backwards)
        if cut is not None:
            writes = [*writes[:cut], Write(0, writes[cut].address, torn, torn=True)]
        for write in writes:
            image[write.address] = write.value
            ledger.apply(write)
        if cut is not None:
            ledger.apply(Start(0, "power-on"))
        at = SLOTS_AT + slot * SLOT_SIZE
        if crc_hqx(bytes(image[at : at + 14]), 0xFFFF) == 0 and image[
            at : at + 4
        ] == sequence.to_bytes(4):
            expected.append((sequence, bytes(image[at + 4 : at + 12])))
            sequence += 1
            slot = (slot + 1) % SLOTS
    ledger.settle()
    assert [(one.sequence, one.source) for one in ledger.publications] == expected
    assert ledger.contradictions == []
    assert ledger.image == image


@given(st.integers(1, 200), st.integers(0, 2**32 - 200))
def test_overwritten_slots_stay_in_the_ledger_but_not_in_the_image(count: int, first: int) -> None:
    ledger = Ledger.replay(
        write
        for i in range(count)
        for write in writes_of(i % SLOTS, slot_bytes(first + i, source(i)))
    )
    assert [one.sequence for one in ledger.publications] == list(range(first, first + count))
    shown = Ledger.from_image(bytes(ledger.image))
    assert [one.sequence for one in shown.publications] == list(range(first, first + count))[
        -SLOTS:
    ]


def test_an_erased_eeprom_holds_nothing() -> None:
    ledger = Ledger.from_image(b"\xff" * EEPROM_SIZE)
    assert (ledger.publications, ledger.incarnation, ledger.boots, ledger.contradictions) == (
        [],
        0,
        0,
        [],
    )


def test_a_sequence_that_becomes_another_publication_is_a_contradiction() -> None:
    ledger = Ledger.replay(
        [*writes_of(0, slot_bytes(1, source(1))), *writes_of(1, slot_bytes(1, source(2)))]
    )
    assert [one.source for one in ledger.publications] == [source(1)]
    assert ledger.contradictions == [
        f"the record of sequence 1 was {source(1).hex()} and became {source(2).hex()}"
    ]


def test_slot_valid_for_a_moment_counts_only_if_the_board_starts_then() -> None:
    """The board writes the slot for sequence 1 twice. Until the last byte of the second attempt,
    the slot has the content of the first attempt.
    """
    first, second = writes_of(0, slot_bytes(1, source(0))), writes_of(0, slot_bytes(1, source(1)))
    torn = [*first[14:], *first[12:14], *first[5:12], Start(0, "power-on")]
    assert [one.source for one in Ledger.replay([*torn, *second]).publications] == [source(1)]
    cut_then = [*torn, *second[:11], Start(0, "power-on")]
    assert [one.source for one in Ledger.replay(cut_then).publications] == [source(0)]
    ledger = Ledger.replay([*cut_then, *second[11:]])
    assert len(ledger.contradictions) == 1


@pytest.mark.parametrize(
    ("mended", "begun"),
    [((0, 1, 2, 3), 16), ((7,), 16), ((0, 1, 2, 3, 7, 13), 50)],
    ids=["the sequence", "one byte", "another publication"],
)
def test_slot_repaired_at_a_start_was_begun_before_the_cut(
    mended: tuple[int, ...], begun: int
) -> None:
    """A board writes a slot backwards, so a power cut may leave the whole slot except for its
    sequence.
    """
    whole = slot_bytes(70_000, source(5))
    torn = bytes(byte ^ 0x5A if at in mended else byte for at, byte in enumerate(whole))
    ledger = Ledger()
    for cycle, content in ((16, torn), (50, whole)):
        for write in writes_of(0, content, backwards=True):
            ledger.apply(replace(write, cycle=cycle))
        ledger.apply(Start(cycle, "power-on"))
    assert [(one.sequence, one.begun) for one in ledger.publications] == [(70_000, begun)]


def test_a_slot_that_is_looked_at_after_each_byte_was_not_begun_by_an_older_attempt() -> None:
    """A start may repair a torn slot long before the next publication is written to this slot. The
    publication begins with its own first write.
    """
    whole = slot_bytes(70_000, source(5))
    torn = bytes(byte ^ 0x5A for byte in whole)
    ledger = Ledger()
    for write in writes_of(0, torn, backwards=True):
        ledger.apply(replace(write, cycle=16))
    ledger.apply(Start(16, "power-on"))
    for cycle, write in enumerate(writes_of(0, whole, backwards=True)[2:], 50):
        ledger.apply(replace(write, cycle=cycle))
        ledger.settle_next()
    ledger.settle()
    assert [(one.sequence, one.begun) for one in ledger.publications] == [(70_000, 50)]


def test_a_sequence_that_falls_back_is_a_contradiction() -> None:
    ledger = Ledger.replay(
        [*writes_of(0, slot_bytes(5, source(1))), *writes_of(1, slot_bytes(4, source(2)))]
    )
    assert ledger.contradictions == ["the record of 4 became complete after that of 5"]


def test_marks_are_those_of_this_sequence_only() -> None:
    ledger = Ledger.replay(
        [
            *writes_of(0, slot_bytes(1, source(1), released=True)),
            *writes_of(1, slot_bytes(2, source(2), True, True)),
        ]
    )
    assert (ledger.state(1), ledger.state(2)) == ((True, False), (True, True))
    assert ledger.waiting() == [1]
    # the slot still has the marks of 1
    for write in writes_of(0, sealed((3).to_bytes(4) + source(3))):
        ledger.apply(write)
    assert len(ledger.publications) == 2
    ledger.settle()
    assert len(ledger.publications) == 3
    assert ledger.state(3) == (False, False)
    with pytest.raises(KeyError):
        ledger.state(1)


def test_an_incarnation_counts_from_its_first_copy_and_the_second_wins() -> None:
    first, second = sealed((0xAABBCCDD).to_bytes(4)), sealed((0x11223344).to_bytes(4))
    ledger = Ledger()
    for at, copy, expected in [
        (0x000, first, [0xAABBCCDD]),
        (0x008, first, [0xAABBCCDD]),
        (0x000, second, [0xAABBCCDD]),
    ]:
        for i, value in enumerate(copy):
            ledger.apply(Write(0, at + i, value))
        assert ledger.incarnations == expected
    for i, value in enumerate(second):
        ledger.apply(Write(0, 0x008 + i, value))
    assert ledger.incarnations == [0xAABBCCDD, 0x11223344]
    assert ledger.incarnation == 0x11223344


@given(st.integers(1, 0xFFFF), st.integers(0, 3))
def test_the_boot_counter_is_the_highest_valid_cell(boot: int, damaged: int) -> None:
    ledger = Ledger()
    for cell in range(4):
        for i, value in enumerate(sealed(max(boot - cell, 0).to_bytes(2))):
            ledger.apply(Write(0, 0x010 + 4 * cell + i, value))
    assert ledger.boots == boot
    ledger.apply(Write(0, 0x010 + 4 * damaged, ledger.image[0x010 + 4 * damaged] ^ 1, torn=True))
    assert ledger.boots == (boot - 1 if damaged == 0 else boot)


def test_a_log_is_read_with_what_the_image_knows_beyond_it(tmp_path: Path) -> None:
    image = bytearray(b"\xff" * EEPROM_SIZE)
    lines = []
    for number, write in enumerate(writes_of(0, slot_bytes(1, source(1)))):
        image[write.address] = write.value
        lines.append(f"{1000 + number} {write.address:03x} {write.value:02x} 0\n")
    lines.insert(0, "900 start power-on\n")
    # as if killed before the last byte of the CRC was logged
    (tmp_path / "log").write_text("".join(lines[:14]))
    (tmp_path / "image").write_bytes(image)
    ledger = Ledger.read(tmp_path / "log", tmp_path / "image")
    assert [one.sequence for one in ledger.publications] == [1]
    (tmp_path / "log").write_text("".join(lines))
    assert Ledger.read(tmp_path / "log", tmp_path / "image").publications[0].cycle == 1013


@pytest.mark.parametrize(
    "line",
    [
        "12 040 00",
        "x 040 00 0",
        "12 400 00 0",
        "12 040 100 0",
        "12 040 00 2",
        "12 040 00 0 0",
        "12 start",
        "",
    ],
)
def test_a_damaged_log_is_refused_by_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f"11 040 00 1\n{line}\n")
    with pytest.raises(OncewayError, match="line 2 is neither an EEPROM write nor a start"):
        list(read_log(tmp_path / "log"))


def test_an_image_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff" * 512)
    (tmp_path / "log").write_text("")
    with pytest.raises(OncewayError, match="has 1024 bytes, this one 512"):
        Ledger.read(tmp_path / "log", tmp_path / "image")
