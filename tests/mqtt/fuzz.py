"""Test millions of damaged packets: `python -m tests.mqtt.fuzz --inputs 1000000 --seed 1`. `make
test` runs a few thousand.

Each input is a series of example packets, some of them repeated, with bytes changed, dropped,
repeated or cut off. A stream reads each input as a whole and in pieces, by packets and by runs.
Three rules must hold: only MqttError is raised; pieces and runs give the same result; an accepted
packet can be written and read again.
"""

import argparse
import random
import sys
import time

from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Version,
)
from gateway.mqtt.runs import Acks, Publishes
from gateway.mqtt.stream import PacketStream
from tests.mqtt.examples import EXAMPLES

MAXIMUM = 4096
_POOL = {
    (v, s): [e.data for e in EXAMPLES if (e.version, e.sender) == (v, s)]
    for v in Version
    for s in Side
}


def damaged(chance: random.Random, version: Version, sender: Side) -> bytes:
    """Return the bytes of one to three example packets, with up to four faults. The last packet may
    be repeated.
    """
    chosen = chance.choices(_POOL[version, sender], k=chance.randint(1, 3))
    chosen[-1] *= chance.choice([1, 1, 2, 5])
    data = bytearray(b"".join(chosen))
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                data[at : at + 1] = bytes((data[at] ^ 1 << chance.randrange(8),)) if data else b""
            case 2:
                del data[at : at + chance.randint(1, 3)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 4)]
            case 4:
                data[at:at] = chance.choice(
                    [b"\0", b"\xff", b"\x80\x80", b"\xff\xff\xff\x7f", b"\xed\xa0\x80"]
                )
    return bytes(data)


_ACKS = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}


def one_by_one(found: Packet | Publishes[str] | Acks) -> list[Packet]:
    """Return the packets of a run, or a list with the one packet."""
    if isinstance(found, Acks):
        return [_ACKS[found.first](packet_id) for packet_id in found.ids]
    if not isinstance(found, Publishes):
        return [found]
    assert len(found.ids) == (found.count if found.qos else 0)
    payloads = found.payloads()
    assert payloads == [found.payload(index) for index in range(found.count)]
    return [
        Publish(found.topic, payload, found.qos, packet_id, found.retain, found.dup)
        for payload, packet_id in zip(payloads, found.ids or [0] * found.count, strict=True)
    ]


def outcome(
    chunks: list[bytes], version: Version | None, sender: Side, *, by_runs: bool = False
) -> tuple[list[Packet], str | None]:
    """Read chunks of bytes. Return the packets, and the text of the error that ended the stream;
    None: no error.
    """
    stream = PacketStream(MAXIMUM, version, sender)
    found: list[Packet] = []
    try:
        for chunk in chunks:
            stream.feed(chunk)
            for item in iter(stream.take, None) if by_runs else stream:
                found += one_by_one(item)
    except MqttError as error:
        return found, str(error)
    return found, None


def check_one(chance: random.Random) -> None:
    """Try one random input. Raises AssertionError if the input breaks a rule of this module."""
    version, sender = chance.choice(list(Version)), chance.choice(list(Side))
    data = damaged(chance, version, sender)
    known = None if sender is Side.CLIENT and chance.random() < 0.3 else version
    whole = outcome([data], known, sender)
    cuts = sorted(chance.randint(0, len(data)) for _ in range(3))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert outcome(pieces, known, sender) == whole, data.hex()
    assert outcome([data], known, sender, by_runs=True) == whole, data.hex()
    assert outcome(pieces, known, sender, by_runs=True) == whole, data.hex()
    spoken = known or version
    for packet in whole[0]:
        spoken = packet.version if isinstance(packet, Connect) else spoken
        again = None if isinstance(packet, Connect) else spoken
        assert outcome([encode(packet, spoken)], again, sender) == ([packet], None), data.hex()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    started = time.monotonic()
    for number in range(arguments.inputs):
        try:
            check_one(chance)
        except Exception:
            print(f"input {number} of seed {arguments.seed} failed", file=sys.stderr)
            raise
    print(
        f"{arguments.inputs:,} inputs, seed {arguments.seed}: nothing escaped"
        f" ({time.monotonic() - started:.0f} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
