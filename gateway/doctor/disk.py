"""The disk of the store: free space, errors, wear.

In: the data directory, and the kernel's information about its device. Out: findings. `root` is the
folder that contains /sys.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage

from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.system.amounts import amount

_NEEDED = 100_000_000
"""Free bytes that the store needs: three times its reserve (`store/space.py`)."""

_PART = "disk"
_WORN = 9
"""Value of DEVICE_LIFE_TIME_EST (JEDEC eMMC 5.1) from which on there is a warning. It counts tenths
of the expected life, rounded up; 11: the life is exceeded.
"""


def room(data: Path, spool_bytes: int) -> Iterator[Finding]:
    """Yield findings about free space. spool_bytes: the limit of the spool in bytes."""
    disk = disk_usage(data)
    if os.statvfs(data).f_flag & os.ST_RDONLY:
        yield wrong(
            _PART,
            f"the file system of {data} is read-only",
            "The kernel makes it read-only after an error: `dmesg | grep -i error`. If the error is"
            " of an mmcblk device, replace the card; then `sudo mount -o remount,rw /`",
        )
    elif disk.free < _NEEDED:
        yield wrong(
            _PART,
            f"only {_megabytes(disk.free)} are free for {data}: new readings are refused soon",
            "Delete unneeded files (`sudo journalctl --vacuum-size=50M`, `sudo apt clean`),"
            " or get the uplink to land the waiting batches",
        )
    elif disk.free < spool_bytes:
        yield warning(
            _PART,
            f"{_megabytes(disk.free)} are free for {data}, but the spool may take"
            f" {_megabytes(spool_bytes)}: the disk would be full before the spool is",
            "Set spool.max_bytes lower, or use a larger card",
        )
    else:
        yield ok(_PART, f"{_megabytes(disk.free)} of {_megabytes(disk.total)} are free for {data}")


def health(data: Path, root: Path = Path("/")) -> Iterator[Finding]:
    """Yield findings about errors of the file system, and the wear that an eMMC reports. An SD card
    reports no wear.
    """
    number = os.stat(data).st_dev
    device = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not device.exists():
        yield unseen("card", f"no block device is known for the file system of {data}")
        return
    device = device.resolve()
    yield from _errors(device, root)
    yield from _wear(device if (device / "queue").exists() else device.parent)


def _errors(device: Path, root: Path) -> Iterator[Finding]:
    try:
        count = int((root / "sys/fs/ext4" / device.name / "errors_count").read_text())
    except (OSError, ValueError):
        return  # another file system, which counts no errors
    if count:
        yield wrong(
            "card",
            f"the file system of {device.name} has counted {amount(count, 'error')}",
            "Make a copy now: `sudo onceway store backup --to FILE`. Then check the file system"
            " (`sudo touch /forcefsck`, reboot), and replace the card if errors occur again",
        )
    else:
        yield ok("card", f"the file system of {device.name} has counted no error")


def _wear(disk: Path) -> Iterator[Finding]:
    try:
        steps = max(int(step, 16) for step in (disk / "device/life_time").read_text().split())
    except (OSError, ValueError):
        return
    if steps >= _WORN:
        yield warning(
            "card",
            f"{disk.name} has used {min(steps, 10) * 10} % of its life",
            "Back up with `sudo onceway store backup --to FILE`, and plan to replace the disk",
        )
    else:
        yield ok("card", f"{disk.name} has used at most {steps * 10} % of its life")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
