"""The uplink over links that break, stall or are slow. Each reading lands once. An outage makes one
log line when it begins and one when it ends.
"""

import json
import logging
import re
import signal
import threading

import pytest

from gateway.config import UplinkSection
from gateway.uplink.batch import decode, sha256
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import base, open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.servers import FaultProxy, wait_until


class Stop(threading.Event):
    """An event that counts how many times the uplink has waited for new work."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(timeout)


class Bench:
    """An uplink in a thread. A proxy is between the uplink and the server."""

    def __init__(self, data, proxy, through, direct) -> None:
        self.data, self.proxy = data, proxy
        self.through, self._direct = through, direct
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def _run(self) -> None:
        spool = Spool(self.data.path)
        try:
            settings = UplinkSection(landing="/x", batch_count=50, batch_age_s=0.05)
            cutter = Cutter(spool, self.data.path, settings)
            Uplink(
                spool,
                cutter,
                settings,
                lambda: open_landing(*self.through),
                load_or_make(self.data.path),
                first_retry_s=0.05,
            ).run(self._stop)
        except BaseException as error:
            self.error = error
        finally:
            spool.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(30)
        self.proxy.close()
        assert not self._thread.is_alive()
        assert self.error is None

    def wait_until_landed(self, timeout: float = 60) -> None:
        """Wait until the spool is empty and the uplink has nothing more to do, so its marker is
        also written.
        """
        wait_until(lambda: not self.data.spool_ids(), "the spool to drain", timeout)
        waits = self._stop.waits
        wait_until(lambda: self._stop.waits > waits, "the uplink to have nothing to do", timeout)

    def landed_numbers(self) -> list[int]:
        """Return the landed readings, read without the proxy."""
        landing = open_landing(*self._direct)
        numbers: list[int] = []
        batch = 1
        try:
            while (manifest := landing.read(f"site-1/00c0ffee/{batch:012d}.json")) is not None:
                data = landing.read(f"site-1/00c0ffee/{batch:012d}.parquet")
                fields = json.loads(manifest)
                assert (fields["bytes"], fields["sha256"]) == (len(data), sha256(data))
                numbers += [int.from_bytes(row[5][:8], "big") for row in decode(data)[0]]
                batch += 1
        finally:
            landing.close()
        return numbers


@pytest.fixture(params=["sftp", "s3"])
def bench(request, data):
    server = request.getfixturevalue(request.param)
    proxy = FaultProxy(server.port)
    folder = request.node.name.replace("[", "-").replace("]", "")
    if request.param == "sftp":
        server.write_known_hosts(server.port, proxy.port)
        through, direct = (
            (f"{server.url(proxy.port)}/{folder}", server.options),
            (f"{server.url()}/{folder}", server.options),
        )
    else:
        through, direct = (
            (f"{server.url()}/{folder}", server.options(proxy.port)),
            (f"{server.url()}/{folder}", server.options()),
        )
    return Bench(data, proxy, through, direct)


def outage_lines(caplog) -> list[str]:
    return [
        re.match(r"outage(:| over)", record.message)[0]
        for record in caplog.records
        if record.message.startswith("outage")
    ]


def test_connections_cut_in_the_middle(bench, data):
    with bench:
        for n in range(3):
            bench.proxy.cut_after = bench.proxy.sent + 900 * (n + 1)
            data.add(120)
            wait_until(lambda n=n: bench.proxy.cuts == n + 1, "the cut")
            bench.wait_until_landed()
        assert bench.landed_numbers() == list(range(1, data.added + 1))


def test_stalled_connection_is_replaced(bench, data, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    with bench:
        data.add(100)
        bench.wait_until_landed()
        with monkeypatch.context() as impatient:
            impatient.setattr(base, "TIMEOUT_S", 1.0)
            bench.proxy.stall = True
            data.add(100)
            wait_until(lambda: "outage:" in caplog.text, "the outage")
        bench.proxy.drop()
        bench.proxy.stall = False
        bench.wait_until_landed()
        assert bench.landed_numbers() == list(range(1, 201))
    assert outage_lines(caplog) == ["outage:", "outage over"]


@pytest.mark.parametrize("bench", ["sftp"], indirect=True)
def test_sigterm_ends_an_uplink_that_hangs_on_a_stalled_connection(bench, data, onceway, tmp_path):
    url, options = bench.through
    lines = "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in options.items() if value is not None
    )
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[uplink]\nlanding ='
        f' "{url}"\nbatch_count = 10\n[uplink.options]\n{lines}'
    )
    data.add(10)
    process = onceway.start("uplink", "run", "--config", config)
    # the last line about a batch: a stall before it would delay the next batch as well
    assert any("batch 1 landed" in line for line in process.stderr)
    bench.proxy.stall = True
    data.add(10)
    wait_until(lambda: len(data.batches()) == 2, "the second batch to be cut")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    bench.proxy.close()
    assert bench.landed_numbers() == list(range(1, 11))
    assert data.spool_ids() == list(range(11, 21))


def test_a_long_outage_is_two_lines_and_nothing_is_lost(bench, data, caplog):
    caplog.set_level(logging.INFO)
    with bench:
        data.add(100)
        bench.wait_until_landed()
        bench.proxy.refuse = True
        bench.proxy.drop()
        for _ in range(5):
            data.add(100)
            tries = bench.proxy.connections
            wait_until(lambda tries=tries: bench.proxy.connections > tries, "another try")
        assert sum(not landed for *_, landed in data.batches()) == 1, "the others are not cut yet"
        bench.proxy.refuse = False
        bench.wait_until_landed()
        assert bench.landed_numbers() == list(range(1, 601))
    assert outage_lines(caplog) == ["outage:", "outage over"]


def test_a_slow_link_is_no_outage(bench, data, monkeypatch, caplog):
    """The time limit holds for a transfer without any progress. A batch may take longer, if its
    bytes move.
    """
    data.add(50)
    with bench:
        bench.wait_until_landed()
        monkeypatch.setattr(base, "TIMEOUT_S", 2.0)
        bench.proxy.rate = 10_000
        before = bench.proxy.sent
        with data.db() as db:
            db.executemany(
                "INSERT INTO spool VALUES ((SELECT id + 1 FROM spool_last), 'noisy', 1, ?, 'noisy',"
                " 't', randomblob(800), 1, 1, 1760000000000000)",
                [(n,) for n in range(50)],
            )
        bench.wait_until_landed()
        assert bench.proxy.sent - before > 2 * 2.0 * bench.proxy.rate
    assert outage_lines(caplog) == []
