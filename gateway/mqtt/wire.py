"""Conversion of the standard's data types (MQTT 5.0 section 1.5) between bytes and Python values.

In: a packet's bytes after the fixed header. Out: integers, str, bytes. `Reader` never reads beyond
its end: a missing byte raises MalformedPacket with the packet, the field and the number of bytes.
"""

from struct import Struct

from gateway.mqtt.errors import MalformedPacket

MAX_VARINT = 268_435_455
MAX_PACKET = 1 + 4 + MAX_VARINT
"""Bytes of the largest possible packet, fixed header included."""
MAX_U16 = 0xFFFF
MAX_U32 = 0xFFFF_FFFF

pack_u16 = Struct(">H").pack
pack_u32 = Struct(">I").pack


class Reader:
    """A reader of consecutive fields in `data[at:end]`. name: the packet's name in error texts."""

    __slots__ = ("at", "data", "end", "lenient", "name")

    def __init__(
        self,
        data: bytes,
        name: str,
        at: int = 0,
        end: int | None = None,
        lenient: bool = False,
    ) -> None:
        self.data = data
        self.name = name
        self.lenient = lenient
        """Whether a packet may carry a reason code that the standard does not allow in it."""
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        return self.end - self.at

    def _short(self, field: str, count: int) -> MalformedPacket:
        return MalformedPacket(
            f"{self.name}: {field} needs {count} bytes, {self.end - self.at} are left"
        )

    def u8(self, field: str) -> int:
        at = self.at
        if at >= self.end:
            raise self._short(field, 1)
        self.at = at + 1
        return self.data[at]

    def u16(self, field: str) -> int:
        at = self.at
        if at + 2 > self.end:
            raise self._short(field, 2)
        self.at = at + 2
        return self.data[at] << 8 | self.data[at + 1]

    def u32(self, field: str) -> int:
        at = self.at
        if at + 4 > self.end:
            raise self._short(field, 4)
        self.at = at + 4
        return int.from_bytes(self.data[at : at + 4], "big")

    def varint(self, field: str) -> int:
        """Read a Variable Byte Integer of 1 to 4 bytes, in its shortest form [MQTT-1.5.5-1]."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8(field)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket(f"{self.name}: {field} is not in its shortest form")
                return value
        raise MalformedPacket(f"{self.name}: {field} is longer than 4 bytes")

    def binary(self, field: str) -> bytes:
        """Read Binary Data: two bytes of length, then the bytes."""
        length = self.u16(field)
        at = self.at
        if at + length > self.end:
            raise self._short(field, length)
        self.at = at + length
        return self.data[at : at + length]

    def string(self, field: str) -> str:
        """Read a UTF-8 Encoded String: no surrogates, no U+0000, BOM kept as it is [MQTT-1.5.4-1],
        [MQTT-1.5.4-2], [MQTT-1.5.4-3].
        """
        raw = self.binary(field)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedPacket(
                f"{self.name}: {field} is not UTF-8 at byte {error.start}"
            ) from None
        if "\0" in text:
            raise MalformedPacket(f"{self.name}: {field} contains U+0000")
        return text

    def rest(self) -> bytes:
        """Read all remaining bytes."""
        at, self.at = self.at, self.end
        return self.data[at : self.end]

    def finish(self) -> None:
        """Raise MalformedPacket if bytes remain."""
        if self.at != self.end:
            raise MalformedPacket(f"{self.name}: {self.end - self.at} bytes too many")


def encode_varint(value: int) -> bytes:
    """Return a Variable Byte Integer in its shortest form. Raises ValueError beyond 268,435,455."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value > MAX_VARINT:
        raise ValueError(f"{value} does not fit a variable byte integer")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_binary(value: bytes) -> bytes:
    """Return Binary Data: two bytes of length, then the value. Raises ValueError beyond 65,535
    bytes.
    """
    if len(value) > MAX_U16:
        raise ValueError(f"{len(value)} bytes do not fit a field of at most {MAX_U16}")
    return pack_u16(len(value)) + value


def encode_string(value: str) -> bytes:
    """Return a UTF-8 Encoded String. Raises ValueError if it contains U+0000 or a surrogate, or is
    too long.
    """
    if "\0" in value:
        raise ValueError("a string must not contain U+0000")
    return encode_binary(value.encode())
