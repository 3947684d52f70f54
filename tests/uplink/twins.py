"""Two gateways with one name and one history, because a card was cloned. Each reading that has left
a spool must be at the landing place, under only one key. A published batch must keep its bytes.
"""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.uplink.batch import Row
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.conftest import GatewayData, decoded

Connect = Callable[[], Landing]


def clone(data: GatewayData, path: Path) -> GatewayData:
    """Return the data of a cloned card. Later readings of the clone have other numbers than those
    of the original.
    """
    twin = GatewayData(path, epoch="ffffffff")
    with data.db() as source, sqlite3.connect(path / "gateway.db") as target:
        source.backup(target)
    for name in ("batches", "uplink.key"):
        if (data.path / name).is_dir():
            shutil.copytree(data.path / name, path / name, dirs_exist_ok=True)
        elif (data.path / name).exists():
            shutil.copyfile(data.path / name, path / name)
    twin.added = data.added + 10_000
    return twin


def land(data: GatewayData, connect: Connect, count: int = 5) -> OncewayError | None:
    """Run the uplink once, like `onceway uplink run --once`. Return the error that ended it, or
    None.
    """
    with Spool(data.path) as spool:
        settings = UplinkSection(landing="/x", batch_count=count)
        cutter = Cutter(spool, data.path, settings)
        uplink = Uplink(spool, cutter, settings, connect, load_or_make(data.path))
        try:
            uplink.run(threading.Event(), once=True)
        except OncewayError as error:
            return error
    return None


def land_together(connect: Connect, *gateways: GatewayData) -> list[OncewayError | None]:
    """Run the uplinks of all gateways at the same time, each in a thread. Return their errors."""
    start = threading.Barrier(len(gateways))
    ends: dict[int, OncewayError | None] = {}

    def run(number: int, data: GatewayData) -> None:
        start.wait()
        ends[number] = land(data, connect)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(gateways)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ends[number] for number in range(len(gateways))]


def published(connect: Connect, name: str = "site-1") -> list[Row]:
    """Return the landed rows of all epochs as a reader gets them."""
    landing = connect()
    rows: list[Row] = []
    try:
        for epoch in landing.epochs(name):
            number = 1
            while landing.read(f"{name}/{epoch}/{number:012d}.json") is not None:
                data = landing.read(f"{name}/{epoch}/{number:012d}.parquet")
                assert data is not None
                rows += decoded(data)[0]
                number += 1
    finally:
        landing.close()
    return rows


def numbers(payloads: list[bytes]) -> set[int]:
    return {int.from_bytes(payload[:8], "big") for payload in payloads}


def spooled(data: GatewayData) -> set[int]:
    with data.db() as db:
        return numbers([row[0] for row in db.execute("SELECT payload FROM spool")])


def nothing_is_lost_or_doubled(
    connect: Connect, readings: set[int], *gateways: GatewayData
) -> None:
    rows = published(connect)
    there = numbers([row[5] for row in rows])
    waiting = set().union(*map(spooled, gateways))
    assert readings <= there | waiting, "readings are gone"
    by_key: dict[tuple[object, ...], bytes] = {}
    by_reading: dict[bytes, tuple[object, ...]] = {}
    for row in rows:
        assert by_key.setdefault(row[:3], row[5]) == row[5], "two readings under one key"
        assert by_reading.setdefault(row[5], row[:3]) == row[:3], "one reading under two keys"
