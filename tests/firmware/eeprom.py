"""EEPROM images. In: the content for the sensor. Out: 1,024 bytes."""

from binascii import crc_hqx

from hil.boards.ledger import EEPROM_SIZE


def with_interval(milliseconds: int) -> bytes:
    """Return an erased EEPROM with only the application's interval (examples/sensor)."""
    record = milliseconds.to_bytes(2)
    image = bytearray(b"\xff" * EEPROM_SIZE)
    image[0x020:0x024] = record + crc_hqx(record, 0xFFFF).to_bytes(2)
    return bytes(image)
