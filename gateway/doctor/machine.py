"""The machine: its clock and its power supply.

In: the kernel's information about both. Out: findings. `root` is the folder that contains /sys.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.doctor.finding import Finding, ok, unseen, wrong
from gateway.runtime.clock import REMEDY, synchronised
from gateway.store.schema import FILE, connect_to_read
from gateway.store.uptime import last_seen
from gateway.system.time_of_day import doubt

_VOLTAGE_SENSOR = "rpi_volt"
_TOO_LOW = "in0_lcrit_alarm"
"""Name of the sensor's alarm for a supply below 4.63 V (Linux, drivers/hwmon/raspberrypi-hwmon.c).
"""


def clock(trusted: bool, data: Path | None = None) -> Iterator[Finding]:
    """Yield a finding about the clock. trusted: `gateway.trust_clock` of the configuration. data:
    the gateway's data directory.
    """
    why = doubt(time.time_ns() // 1000, None if data is None else _seen(data))
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if why is not None:
        yield wrong("clock", f"it shows {now}, which is not believed: {why}", REMEDY)
    elif synchronised():
        yield ok("clock", f"synchronised: {now}")
    elif trusted:
        yield ok("clock", f"not synchronised, but trusted (gateway.trust_clock): {now}")
    else:
        yield wrong(
            "clock",
            f"not synchronised, it shows {now}: messages get no time yet",
            "`timedatectl` shows whether the clock is set from the network. Without a network, add"
            " a clock module, or set"
            " gateway.trust_clock = true if this clock is right",
        )


def _seen(data: Path) -> int | None:
    """Return the newest time of day that the gateway's store has noted, in µs since 1970; None if
    it has none, or cannot be read.
    """
    try:
        with closing(connect_to_read(data / FILE)) as database:
            return last_seen(database)
    except (sqlite3.Error, ValueError):
        return None


def power(root: Path = Path("/")) -> Iterator[Finding]:
    """Yield findings about under-voltage, which only a Raspberry Pi measures."""
    for sensor in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        try:
            if (sensor / "name").read_text().strip() != _VOLTAGE_SENSOR:
                continue
            low = (sensor / _TOO_LOW).read_text().strip() != "0"
        except OSError as error:
            yield unseen("power supply", f"cannot read {sensor} ({os.strerror(error.errno or 0)})")
            continue
        if low:
            yield wrong(
                "power supply",
                "the voltage is too low: the machine slows down and its card can lose data",
                "Use the supply made for this Pi and a short cable; connect USB devices through a"
                " powered hub",
            )
        else:
            yield ok("power supply", "the voltage is right")
