"""Small parts of a run: progress of the ingest from its folders, counts that wake tasks, the
landing place broken and repaired, samples.
"""

import asyncio
import json
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.faults.landing_place import LandingPlace
from hil.judge import senml
from hil.observe.counters import Counters, wait_until
from hil.observe.ingest_progress import IngestProgress


def offsets(checkpoint: Path, number: int, offset: dict[str, int]) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text(
        f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}'
    )


def test_a_micro_batch_is_between_its_offsets_and_its_commit(tmp_path: Path) -> None:
    progress = IngestProgress(tmp_path / "checkpoint", tmp_path / "table")
    assert (progress.started, progress.in_batch, progress.batches(), progress.appends) == (
        False,
        False,
        {},
        0,
    )
    offsets(tmp_path / "checkpoint", 0, {"site/a": 3})
    assert progress.in_batch
    assert progress.batches() == {}
    (tmp_path / "checkpoint" / "commits").mkdir()
    (tmp_path / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    assert not progress.in_batch
    offsets(tmp_path / "checkpoint", 1, {"site/a": 5})
    (tmp_path / "checkpoint" / "offsets" / ".2.crc").write_text("")
    assert progress.in_batch
    assert progress.batches() == {"site/a": 3}
    for torn in ("", "v1\n{", 'v1\n{}\n{"site'):  # by a power cut
        (tmp_path / "checkpoint" / "offsets" / "0").write_text(torn)
        assert progress.batches() == {}


def test_appends_are_commits_that_add_files(tmp_path: Path) -> None:
    progress = IngestProgress(tmp_path / "checkpoint", tmp_path / "table")
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"metaData":{}}\n')
    assert (progress.started, progress.appends) == (True, 0)
    (log / f"{1:020d}.json").write_text('{"commitInfo":{}}\n{"add":{"path":"x.parquet"}}\n')
    (tmp_path / "table" / "x.parquet").write_text("")
    assert progress.appends == progress.appends == 1
    (log / f"{2:020d}.json").write_text("")  # torn by a power cut, and written again
    assert progress.appends == 1
    (log / f"{2:020d}.json").write_text('{"add":{"path":"y.parquet"}}\n')
    assert progress.appends == 2


async def test_waiter_for_a_count_wakes_when_it_is_reached() -> None:
    counters = Counters()
    counters.set("spooled", 5)
    await counters.reach("spooled", 5)
    waiting = asyncio.create_task(counters.reach("spooled", 7))
    counters.set("spooled", 6)
    counters.set("landed", 9)
    await asyncio.sleep(0)
    assert not waiting.done()
    counters.set("spooled", 8)
    counters.set("spooled", 4)
    await waiting
    assert counters["spooled"] == 8
    await wait_until(lambda: counters["landed"] == 9)


@pytest.fixture
def landing(tmp_path: Path) -> LandingPlace:
    (tmp_path / "landing").mkdir()
    return LandingPlace(tmp_path / "landing", tmp_path / "mount", tmp_path / "uplink.key")


def test_the_way_to_the_landing_place_goes_and_comes_back(
    tmp_path: Path, landing: LandingPlace
) -> None:
    (tmp_path / "mount" / "file").write_text("before")
    landing.unmount()
    with pytest.raises(NotADirectoryError):
        (tmp_path / "mount" / "file").write_text("during")
    with pytest.raises(NotADirectoryError):
        (tmp_path / "mount" / "folder").mkdir(parents=True)
    assert (tmp_path / "landing" / "file").read_text() == "before"
    landing.mount()
    assert (tmp_path / "mount" / "file").read_text() == "before"


def source(time: int, value: int, kind: int = 0, detail: int = 0) -> bytes:
    return time.to_bytes(4) + value.to_bytes(2) + bytes((kind, detail))


@given(raw=st.integers(0, 1023), time=st.integers(senml.ERA, 2**31 - 1))
def test_a_payload_says_what_the_board_journalled(raw: int, time: int) -> None:
    payload = cbor2.dumps([{-2: "uno-1:", -3: time, 0: "adc0", 1: "V", 2: raw * 5 / 1024}])
    assert senml.says(senml.decode(payload), senml.expected("uno-1", source(time, raw)))
    assert not senml.says(senml.decode(payload), senml.expected("uno-1", source(time, raw ^ 1)))
    assert not senml.says(senml.decode(payload), senml.expected("uno-1", source(time ^ 1, raw)))
    assert not senml.says(senml.decode(payload), senml.expected("uno-2", source(time, raw)))
    assert not senml.says(
        senml.decode(payload), senml.expected("uno-1", source(time, raw, detail=3))
    )


def test_a_board_that_does_not_know_the_time_sends_none() -> None:
    payload = cbor2.dumps([{-2: "uno-1:", 0: "adc0", 1: "V", 2: 2.5}, {0: "missed", 2: 3}])
    assert senml.decode(payload) == senml.expected("uno-1", source(0x8000_0005, 512, detail=3))


def test_base_fields_hold_for_the_records_after_them() -> None:
    at = 1_700_000_000
    pack = [{-2: "uno-1:adc0", -3: at, -4: "V", 2: 1.0}, {1: "mV", 2: 2.0, 6: 10}]
    pack += [{-2: "uno-1:", 0: "x", 2: 3.0}]
    assert senml.decode(cbor2.dumps(pack)) == (
        senml.Record("uno-1:adc0", 1.0, at, "V"),
        senml.Record("uno-1:adc0", 2.0, at + 10, "mV"),
        senml.Record("uno-1:x", 3.0, at, "V"),
    )


def test_json_and_cbor_say_the_same_and_what_is_no_number_is_read_too() -> None:
    packed = cbor2.dumps([{0: "a", 4: True, 6: -12}, {0: "b", 3: "x", 5: 2}, {0: "c", 8: b"\0"}])
    told = (
        senml.Record("a", None, -12, relative=True, flag=True),
        senml.Record("b", None, None, text="x", sum=2.0),
    )
    assert senml.decode(packed) == (*told, senml.Record("c", None, None, data="00"))
    text = b'[{"n":"a","vb":true,"t":-12},{"n":"b","vs":"x","s":2}]'
    assert senml.decode(text) == told


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_none(payload: bytes) -> None:
    senml.decode(payload)


@pytest.mark.parametrize(
    "pack",
    [[{}], [{-2: "a", 0: "b"}], [{-2: 1, 0: "b", 2: 1}], [{0: "b", 2: "x"}], {"a": 1}, 7, [[1]]],
)
def test_invalid_senml_has_no_readings(pack: object) -> None:
    assert senml.decode(cbor2.dumps(pack)) is None
    assert not senml.says(None, ())
