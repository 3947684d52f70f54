"""Any bytes at a landing place affect only one batch or one feed. Readers raise only OSError and
Damaged, and every text about them is printable.
"""

import base64
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.ingest import clean
from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing import batch
from gateway.ingest.landing.keys import Keys, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Announced, Landing, parse_manifest
from gateway.ingest.landing.trust import Trust
from gateway.ingest.log_lines import OneLine
from gateway.ingest.report import metrics, report
from gateway.ingest.report.report import FeedReport, Report
from gateway.ingest.sink import merged_batches
from gateway.uplink import owner
from gateway.uplink.batch import encode
from gateway.uplink.landing import open_landing
from gateway.uplink.manifest import (
    Manifest,
    Origin,
    parse_cleaned,
    parse_refused,
    sha256,
    without_signature,
)
from tests.ingest.batches import EPOCH, land, row

FEED = f"site/{EPOCH}"
ORIGIN = Origin("site", EPOCH)
DATA = encode([row("dev", number) for number in (1, 2, 3)], ORIGIN, 1)
WHOLE = json.loads(Manifest(ORIGIN, 1, 3, len(DATA), sha256(DATA)).to_json())
PUBLIC = base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).decode()

ODD = [
    "\ud800",
    "\udfff\n held: all",
    "\x1b[2J",
    "\0",
    "",
    "a/b/c",
    10**30,
    -(10**4000),
    2**63,
    float("inf"),
    float("-inf"),
    float("nan"),
    1.5,
    True,
    None,
    [],
    {},
    {"\ud800": "\ud800"},
    [[[[[]]]]],
]

values = st.recursive(
    st.sampled_from(ODD) | st.text() | st.integers() | st.floats(),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(), more, max_size=3),
    max_leaves=5,
)
fields = st.dictionaries(
    st.sampled_from([*WHOLE, "key", "signature", "other"]), values, max_size=3
).map(lambda changes: WHOLE | changes)


def doubled(text: bytes) -> bytes:
    """Return a JSON object in which each key appears twice."""
    return text[:-1] + b"," + text[1:]


manifests = (
    st.binary(max_size=200)
    | fields.map(lambda one: json.dumps(one).encode())
    | fields.map(lambda one: doubled(json.dumps(one).encode()))
    | values.map(lambda one: json.dumps(one).encode())
    | st.sampled_from(
        [
            b'{"schema":1e999}',
            b'{"schema":1,"rows":' + b"9" * 4000 + b"}",
            b"[" * 4000,
            b'{"schema":' * 400,
            b'{"schema":"' + b"\\ud800" * 600 + b'"}',
            b"\xef\xbb\xbf{}",
            json.dumps(WHOLE).encode("utf-16"),
            json.dumps(WHOLE).encode("utf-32"),
        ]
    )
)


def trusts() -> list[Trust]:
    """Return three trusts: one accepts unsigned batches, one knows no key, and one knows a key of
    the gateway `site`.
    """
    found = []
    for keys in (Keys(unsigned=True), Keys(unsigned=False), Keys({"site": [PUBLIC]})):
        trust = Trust("nowhere", True)
        trust.use(keys)
        found.append(trust)
    return found


def printed(text: str) -> None:
    """Check that a text is one printable line."""
    text.encode()
    assert text.isprintable()


def goes_into_the_table(announced: Announced) -> None:
    """Check that the text about a damaged batch can be written to the table and printed."""
    reason = announced.flaw
    if reason is None:
        return
    (noted,) = merged_batches.damaged(announced, reason)["flaw"].to_pylist()
    printed(noted)


@given(text=manifests)
@example(text=json.dumps(WHOLE | {"schema": "\ud800"}).encode())
@example(text=json.dumps(WHOLE | {"key": "\ud800", "signature": "x"}).encode())
@example(text=json.dumps(WHOLE | {"key": "a", "signature": "\ud800"}).encode())
@settings(deadline=None, max_examples=400)
def test_a_manifest_of_any_bytes_is_a_manifest_or_has_a_flaw(text: bytes) -> None:
    announced = parse_manifest(text, FEED, 1)
    without_signature(text)
    for trust in trusts():
        goes_into_the_table(trust.check(announced))


@given(text=manifests)
@settings(deadline=None, max_examples=400)
def test_the_other_notes_of_any_bytes_are_notes_or_none(text: bytes) -> None:
    for cleaned in (parse_cleaned(text), parse_cleaned(b'{"cleaned":' + text + b"}")):
        assert all(0 < number < 10**12 for number in (cleaned or {}).values())
    note = parse_refused(text)
    if note is not None:
        for part in note[1:]:
            printed(part)


@given(
    note=st.fixed_dictionaries(
        {"owner": values, "host": values, "at": values, "epoch": values, "landed": values}
    )
    | st.dictionaries(st.sampled_from(["owner", "host", "at"]), values)
)
@settings(deadline=None)
def test_a_note_of_odd_values_is_printed_in_one_line(note: dict[str, Any]) -> None:
    text = json.dumps(note).encode()
    found = parse_refused(text)
    if found is not None:
        for part in found[1:]:
            printed(part)


def with_table(data: bytes, table: pa.Table) -> bytes:
    kept = pq.read_metadata(pa.BufferReader(data)).metadata
    sink = pa.BufferOutputStream()
    labels = {key: value for key, value in kept.items() if key != b"ARROW:schema"}
    pq.write_table(table.replace_schema_metadata(labels), sink)
    return bytes(sink.getvalue())


TABLE = pq.read_table(pa.BufferReader(DATA))


def renamed(place: int, name: str) -> bytes:
    names = list(TABLE.column_names)
    names[place] = name
    return with_table(DATA, TABLE.rename_columns(names))


columns = st.one_of(
    st.integers(0, 9).map(lambda n: with_table(DATA, TABLE.append_column(*column(n)))),
    st.tuples(st.integers(0, 9), st.sampled_from(TABLE.column_names)).map(lambda x: renamed(*x)),
    st.permutations(range(10)).map(lambda order: with_table(DATA, TABLE.select(order))),
    st.sampled_from(
        [
            with_table(DATA, TABLE.slice(0, 0)),
            with_table(DATA, TABLE.select([])),
            with_table(DATA, TABLE.append_column("x", pa.array([[1], [], None]))),
            b"",
            b"PAR1",
            b"PAR1PAR1",
        ]
    ),
)


def column(number: int) -> tuple[str, pa.ChunkedArray]:
    return TABLE.column_names[number], TABLE[number]


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """Draw a Parquet file with some changed bytes, most in its second half."""
    data = bytearray(DATA)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data) - 1) | st.integers(len(data) // 2, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data)


@given(data=altered() | columns | st.binary(max_size=100))
@example(data=with_table(DATA, TABLE.append_column(*column(0))))
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_parquet_of_any_bytes_gives_rows_or_a_reason(data: bytes) -> None:
    """The manifest matches the bytes, as if an attacker had the gateway's key."""
    announced = Announced(FEED, 1, 3, len(data), sha256(data))
    try:
        table = batch.check(data, announced)
    except batch.Damaged as damage:
        (noted,) = merged_batches.damaged(announced, str(damage))["flaw"].to_pylist()
        printed(noted)
    else:
        assert merged_batches.build([(announced, table)], 1) is not None


def test_an_unexpected_exception_is_a_flaw_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch, "_check_table", lambda *_: {}["gone"])
    with pytest.raises(batch.Damaged, match="KeyError"):
        batch.check(DATA, Announced(FEED, 1, 3, len(DATA), sha256(DATA)))
    assert "KeyError" in caplog.text
    caplog.clear()
    monkeypatch.setattr(json, "loads", lambda *_: 1 // 0)
    assert parse_manifest(b"{}", FEED, 1).flaw == "unreadable manifest: ZeroDivisionError"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "change", [{"schema": "\ud800"}, {"key": "\ud800", "signature": "x"}, {"rows": 10**30}]
)
def test_an_odd_manifest_stops_no_other_feed(tmp_path: Path, change: dict[str, Any]) -> None:
    land(tmp_path, "good", 1, [row("a", 1)])
    manifest = land(tmp_path, "bad", 1, [row("b", 1)])
    odd = json.loads((tmp_path / manifest.name).read_bytes()) | change
    (tmp_path / manifest.name).write_text(json.dumps(odd))
    save(str(tmp_path / "keys.json"), Keys({"bad": [PUBLIC]}, unsigned=True))
    landing = Landing(str(tmp_path))
    feeds = Feeds(landing, trust=Trust(str(tmp_path / "keys.json"), False))
    offset = feeds.advance({}, 100)
    assert offset == {f"bad/{EPOCH}": 1, f"good/{EPOCH}": 1}
    chunks = read_batches(landing, BatchList(0, feeds.between({}, offset)))
    flaws = {one["gateway"][0].as_py(): one["flaw"][0].as_py() for one in chunks}
    assert flaws["good"] is None
    assert flaws["bad"]


def test_an_odd_note_of_what_was_cleaned_does_not_end_a_cleaning(tmp_path: Path) -> None:
    land(tmp_path, "bad", 1, [row("b", 1)])
    note = tmp_path / "bad" / "cleaned.json"
    note.write_text('{"schema":1,"cleaned":{"\\ud800":3,"0000000a":1e999,"0000000b":7}}')
    landing = Landing(str(tmp_path))
    clean.say(landing, f"bad/{EPOCH}", 1)
    assert landing.cleaned_epochs("bad") == {EPOCH: 1, "0000000b": 7}


@pytest.mark.parametrize("landed", ["1e999", "[" * 5000, '"\\ud800"', "null"])
def test_odd_owner_mark_names_no_owner(tmp_path: Path, landed: str) -> None:
    (tmp_path / "bad").mkdir()
    mark = f'{{"owner":"","epoch":"","host":"\\ud800\\n","since":"","landed":{landed}}}'
    (tmp_path / "bad" / "owner.json").write_text(mark)
    place = open_landing(str(tmp_path), {})
    found = owner.read(place, "bad")
    place.close()
    assert found is not None
    assert (found.owner, found.host) == ("", "unknown")


def test_names_of_strangers_forge_no_log_line() -> None:
    forged = "\ud800\nheld: everything\x1b[2J"
    made = Report(
        [FeedReport(f"{forged}/{EPOCH}", 1, 1, 1, 0, 0, "", held=f"{forged}: waits")],
        refused=[(forged, forged, forged)],
        stopped=forged,
    )
    text = report.text(made)
    text.encode()
    assert all(map(str.isprintable, text.split("\n")))
    assert not any(line.startswith("held: everything") for line in text.split("\n"))
    numbers = metrics.text(made, 1.0)
    numbers.encode()
    assert all(map(str.isprintable, numbers.split("\n")))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Yield the text of the log, as it is printed on standard error."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(OneLine("%(message)s"))
    logger = logging.getLogger("onceway.ingest")
    logger.addHandler(handler)
    yield handler.stream
    logger.removeHandler(handler)


@pytest.mark.parametrize("name", ["a\nheld: all", "\ud800", "\x1b[2J", "a\u2028b", "a\rb"])
def test_a_message_stays_one_line(log: io.StringIO, name: str) -> None:
    logging.getLogger("onceway.ingest").warning("released: %s", name)
    (line,) = log.getvalue().splitlines()
    assert line.isprintable()


def test_a_traceback_keeps_its_lines(log: io.StringIO) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        logging.getLogger("onceway.ingest").exception("odd\nname")
    first, *more = log.getvalue().splitlines()
    assert first == "odd\\nname"
    assert more[-1] == "KeyError: 'x'"


@pytest.mark.parametrize("name", ["lab\nheld: all", "lab\x1b[2J", "lab\r"])
def test_a_held_gateway_forges_no_line(tmp_path: Path, name: str, log: io.StringIO) -> None:
    """A folder, or a prefix on S3, may have a line feed in its name."""
    save(str(tmp_path / "keys.json"), Keys(unsigned=False))
    land(tmp_path / "landing", name, 1, [row("a", 1)])
    landing = Landing(str(tmp_path / "landing"))
    feeds = Feeds(landing, trust=Trust(str(tmp_path / "keys.json"), True))
    assert feeds.advance({}, 100) == {}
    (held,) = log.getvalue().splitlines()
    assert held.startswith("held: lab\\")
    assert held.isprintable()


@pytest.mark.parametrize("program", ["script", "source"])
def test_each_process_writes_the_chosen_log_format(program: str) -> None:
    """Spark's driver runs the script. Another process of Spark runs the source."""
    code = {
        "script": "from gateway.ingest.jobs.script import run_script\n"
        "run_script(lambda: log.warning('a\\nb'))",
        "source": "from gateway.ingest.jobs.source import LandingReader\n"
        "LandingReader('/', {}, 1, 1, False, None, None)._feeds\nlog.warning('a\\nb')",
    }[program]
    head = "import logging\nlog = logging.getLogger('onceway.ingest')\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a\\nb" in done.stderr
