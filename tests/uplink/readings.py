"""Readings as sensors send them, for tests and benchmarks of the uplink."""

import random
import struct
from collections.abc import Callable

from gateway.uplink.batch import Row


def sensor_rows(
    count: int, devices: int = 20, payload: Callable[[], bytes] | None = None
) -> list[Row]:
    """Return rows of a batch, taking the devices in turn. By default, payloads are SenML in CBOR as
    `examples/sensor` writes it: a record with time and value.
    """
    rng = random.Random(count)
    sequences = [rng.randrange(1, 60_000) for _ in range(devices)]
    incarnation = [rng.getrandbits(32) for _ in range(devices)]
    now, since = 1_790_000_000_000_000, 86_400_000_000
    found: list[Row] = []
    for n in range(count):
        device = n % devices
        step = rng.randrange(20_000, 180_000)
        now, since = now + step, since + step
        sequences[device] += 1
        name = f"sensor-{device:03d}"
        body = (
            payload()
            if payload
            else senml(name, now // 1_000_000, rng.randrange(300, 700) * 5 / 1024)
        )
        found.append(
            (
                name,
                incarnation[device],
                sequences[device],
                None,
                f"sensors/{name}",
                body,
                now,
                3,
                since,
                7 * n,
            )
        )
    return found


def senml(device: str, seconds: int, volts: float) -> bytes:
    """Return `[{bn: "DEVICE:", bt: seconds, n: "adc0", u: "V", v: volts}]` as SenML in CBOR (RFC
    8428, section 6). With a short name, it has 36 bytes, as from the firmware.
    """
    base = device.encode() + b":"
    head = (
        b"\x81\xa5\x21"
        + bytes([0x60 + len(base)])
        + base
        + b"\x22\x1a"
        + seconds.to_bytes(4, "big")
    )
    return head + b"\x00\x64adc0\x01\x61V\x02\xfa" + struct.pack(">f", volts)
