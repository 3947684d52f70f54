"""Packet identifiers, and the message numbers that they follow from.

A session numbers its outgoing QoS 1 and 2 messages 1, 2, 3, … without end; the packet identifier is
that number folded into 1…65535. So an identifier needs no record: it follows from the queue
position, before and after a power cut. Identifiers of a device on a reliable link also follow from
its numbers: the low 16 bits of its 32-bit sequence are the packet identifier
(`gateway/links/FORMAT.md`).
"""

from struct import pack, unpack

IDENTIFIERS = 0xFFFF

_table = pack(f">{IDENTIFIERS}H", *range(1, IDENTIFIERS + 1)) * 2
HIGH = _table[0::2]
"""High bytes of the packet identifiers 1…65535, twice, to be copied into a run of packets."""
LOW = _table[1::2]


def packet_id(number: int) -> int:
    """Return the packet identifier of message `number` (from 1)."""
    return (number - 1) % IDENTIFIERS + 1


def packet_ids(number: int, count: int) -> range | list[int]:
    """Return the packet identifiers of `count` messages from `number` on."""
    start = packet_id(number)
    if start + count <= IDENTIFIERS + 1:
        return range(start, start + count)
    return [*range(start, IDENTIFIERS + 1), *range(1, start + count - IDENTIFIERS)]


def number_of(identifier: int, first: int) -> int:
    """Return the number at or after `first` that has this packet identifier."""
    return first + (identifier - first) % IDENTIFIERS


def sequence_of(identifier: int, near: int) -> int:
    """Return a device's 32-bit sequence from its packet identifier: the sequence with these low 16
    bits that is nearest to `near` (its last known or next sequence).
    """
    candidate = near & ~0xFFFF | identifier
    if candidate > near + 0x8000 and candidate >= 0x10000:
        return candidate - 0x10000
    if candidate < near - 0x8000 and candidate <= 0xFFFE_FFFF:
        return candidate + 0x10000
    return candidate


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """Return the packet identifiers of a list for the store: 16 bits each, big-endian."""
    return unpack(f">{len(data) // 2}H", data)


def pack_bits(bits: bytes | bytearray) -> bytes:
    """Pack a set of identifiers for the store. bits: 65,536 bits, the lowest bit of each byte
    first. Format: two zero bytes, with which no list of identifiers begins; the byte offset of the
    first pair of bytes that is not zero, in two bytes; the pairs from there to the last such pair.
    """
    begun = bits.lstrip(b"\0")
    first = (len(bits) - len(begun)) & ~1
    return pack(">HH", 0, first) + bits[first : len(bits.rstrip(b"\0")) + 1 & ~1]


def unpack_set(data: bytes) -> tuple[int, ...]:
    """Return the identifiers in the result of `pack_bits`, or in a list (`unpack_ids`)."""
    if data[:2] != b"\0\0":
        return unpack_ids(data)
    (first,) = unpack(">H", data[2:4])
    return tuple(
        (first + at) * 8 + bit
        for at, byte in enumerate(data[4:])
        if byte
        for bit in range(8)
        if byte >> bit & 1
    )
