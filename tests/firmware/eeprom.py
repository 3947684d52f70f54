"""EEPROM images of the sensor example, 1,024 bytes each."""

from binascii import crc_hqx

from hil.boards.ledger import EEPROM_SIZE


def with_interval(milliseconds: int) -> bytes:
    """Return an EEPROM that has only the sampling interval of the sensor example."""
    record = milliseconds.to_bytes(2)
    image = bytearray(b"\xff" * EEPROM_SIZE)
    image[0x020:0x024] = record + crc_hqx(record, 0xFFFF).to_bytes(2)
    return bytes(image)
