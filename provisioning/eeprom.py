"""Empties a board's EEPROM. In: its size. Out: a program for the board that erases the EEPROM, and
how long the program runs.

The EEPROM of a board that had another identity holds its incarnation and perhaps unsent
publications, which would be published under the new name. Few boot loaders can write the EEPROM, so
a small program does it, flashed before the firmware.
"""

import struct
from pathlib import Path

from intelhex import IntelHex

CELL_S = 0.0034
"""Seconds to erase and write a cell (ATmega328P data sheet, table 8-2)."""
_MARGIN = 1.25
_BOOT_S = 3.0
"""Seconds allowed for boot loaders that wait before they start the program."""

_COMPARE = 12
_PROGRAM = (
    0x94F8,  # cli
    0x2788,  # clr  r24                 the address
    0x2799,  # clr  r25
    0xEF2F,  # ldi  r18, 0xFF           what an erased cell holds
    0x99F9,  # next: sbic EECR, EEPE    a write is under way
    0xCFFE,  # rjmp next
    0xBD92,  # out  EEARH, r25
    0xBD81,  # out  EEARL, r24
    0xBD20,  # out  EEDR, r18
    0x9AFA,  # sbi  EECR, EEMPE
    0x9AF9,  # sbi  EECR, EEPE
    0x9601,  # adiw r24, 1
    0x3090,  # cpi  r25, SIZE / 256
    0xF7B1,  # brne next
    0xCFFF,  # here: rjmp here
)
"""The erasing program. Its I/O registers have the same addresses on ATmega328P and ATmega2560."""


def write_eraser(path: Path, size: int) -> None:
    """Write a HEX file with the program that erases an EEPROM. size: bytes of the EEPROM."""
    words = list(_PROGRAM)
    pages = size // 256
    words[_COMPARE] |= (pages & 0xF0) << 4 | pages & 0x0F  # cpi: KKKK dddd KKKK
    image = IntelHex()
    image.puts(0, struct.pack(f"<{len(words)}H", *words))
    image.write_hex_file(str(path))


def seconds(size: int) -> float:
    """Return the longest time, in seconds, that the eraser needs for an EEPROM of `size` bytes."""
    return _BOOT_S + size * CELL_S * _MARGIN
