"""The EEPROM of a board that has published for a long time. The rig makes it, because no run lasts
that long.

In: the next sequence. Out: an image with the layout of firmware/JOURNAL.md.

A few slots hold the newest publications, all done. The other slots, which are used next, count as
erased. But their two marks, for released and done, already have the values that are valid for the
slot's next publication. The board must clear these marks before that publication is complete. (When
it starts, a board repairs damaged slots, but not erased ones.) The boot counter is about to exceed
its 16 bits.
"""

from binascii import crc_hqx

from hil.boards.ledger import (
    BOOT_CELLS,
    DONE_MASK,
    ERASED,
    INCARNATION_COPIES,
    RELEASED_AT,
    RELEASED_MASK,
    SLOT_SIZE,
    SLOTS,
    SLOTS_AT,
)

HELD = 4  # publications in the image
SOURCE = bytes(8)  # source of each publication; no board reads it after the publication is done
NO_SEQUENCE = bytes((0xFF, 0, 0, 0))  # in an erased slot: no sequence has 0 as its low 16 bits
STARTS = 0xFFFE  # number of starts: the second start of a run is number 0


def used_image(following: int, incarnation: int) -> bytes:
    """Return the EEPROM of a used board. following: the next sequence, which goes into slot 0."""
    image = bytearray(ERASED)
    for at in INCARNATION_COPIES:
        _put(image, at, _sealed(incarnation.to_bytes(4)))
    for number, at in enumerate(BOOT_CELLS, STARTS - len(BOOT_CELLS) + 1):
        _put(image, at, _sealed(number.to_bytes(2)))
    sequence = following
    for slot in reversed(range(SLOTS - HELD, SLOTS)):
        sequence = before(sequence)
        _put(image, _address(slot), _sealed(sequence.to_bytes(4) + SOURCE) + _marks(sequence))
    sequence = following
    for slot in range(SLOTS - HELD):
        _put(image, _address(slot), NO_SEQUENCE)
        _put(image, _address(slot) + RELEASED_AT, _marks(sequence))
        sequence = after(sequence)
    return bytes(image)


def after(sequence: int) -> int:
    """Return the sequence after this one. Sequences whose low 16 bits are 0 are not used."""
    return sequence + 1 + ((sequence + 1) & 0xFFFF == 0)


def before(sequence: int) -> int:
    return sequence - 1 - ((sequence - 1) & 0xFFFF == 0)


def _address(slot: int) -> int:
    return SLOTS_AT + slot * SLOT_SIZE


def _marks(sequence: int) -> bytes:
    low = sequence & 0xFF
    return bytes((low ^ RELEASED_MASK, low ^ DONE_MASK))


def _sealed(record: bytes) -> bytes:
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def _put(image: bytearray, at: int, content: bytes) -> None:
    image[at : at + len(content)] = content
