"""The EEPROM image that the rig makes for a board which has published for a long time: its content
by the ledger, and benches that use it.
"""

from binascii import crc_hqx

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from hil.bench.bench import Bench
from hil.boards.ledger import BOOT_CELLS, SLOTS_AT, Ledger, Write
from hil.boards.used import HELD, STARTS, after, before, used_image

sequences = st.integers(61, 0xFFFF_0000).filter(lambda sequence: sequence & 0xFFFF)


@given(first=sequences)
@example(first=0x1_0001)
def test_a_used_board_holds_what_it_published_last_and_owes_nothing(first: int) -> None:
    ledger = Ledger.from_image(used_image(first, 0xC0FFEE))
    assert (ledger.incarnation, ledger.boots) == (0xC0FFEE, STARTS)
    assert len(ledger.publications) == HELD
    assert ledger.publications[-1].sequence == before(first)
    assert all(one.sequence & 0xFFFF for one in ledger.publications)
    assert ledger.waiting() == []
    assert ledger.contradictions == []


@given(first=sequences)
def test_a_slot_whose_marks_were_not_taken_away_first_holds_a_publication_that_seems_done(
    first: int,
) -> None:
    """The erased slots of the image have marks of an acknowledged publication. If a firmware writes
    a slot without erasing these marks, the new publication seems to be acknowledged, which the rig
    notices.
    """
    ledger = Ledger.from_image(used_image(first, 1))
    record = first.to_bytes(4) + bytes(8)
    for offset, byte in enumerate(record + crc_hqx(record, 0xFFFF).to_bytes(2)):
        ledger.apply(Write(None, SLOTS_AT + offset, byte))
    ledger.settle()
    assert ledger.publications[-1].sequence == first
    assert ledger.waiting() == []


def test_a_used_board_counts_its_starts_across_the_end_of_16_bits() -> None:
    """The test writes each start into the boot cells as the firmware does: the next number goes
    into the next cell.
    """
    ledger = Ledger.from_image(used_image(100, 1))
    for at in list(BOOT_CELLS)[:3]:
        number = (ledger.boots + 1) & 0xFFFF
        record = number.to_bytes(2)
        for offset, byte in enumerate(record + crc_hqx(record, 0xFFFF).to_bytes(2)):
            ledger.apply(Write(None, at + offset, byte))
        assert ledger.boots == number
    assert number == 1


def test_sequences_skip_those_that_make_no_identifier() -> None:
    assert (after(0xFFFF), before(0x1_0001)) == (0x1_0001, 0xFFFF)
    assert (after(7), before(7)) == (8, 6)


@pytest.mark.parametrize("first", [0, 2, 60, 0x1_0000, -5])
def test_a_bench_refuses_a_sequence_that_no_used_board_has(first: int) -> None:
    with pytest.raises(ValidationError, match="first_sequence"):
        Bench.model_validate({"title": "t", "first_sequence": first})
