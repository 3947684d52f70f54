"""The page of the product's outputs, hil/OUTPUTS.md: `python -m tests.hil.outputs` (`make docs`).

In: the product: its tables, the files of a batch, the store, its status and its metrics. Out: for
each column, key and metric the module of the judge that compares it with the rig's counts, or the
reason why none does (NOT_JUDGED). A test compares page and product, and fails for an output that is
in neither list.
"""

import asyncio
import importlib
import json
import pkgutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import gateway.ingest
from gateway.bridge.status import BridgeStatus
from gateway.broker.broker import Broker
from gateway.broker.store_rows import Recovered
from gateway.config import Config
from gateway.ingest.delta.tables import Layout
from gateway.ingest.landing.batch import SCHEMA
from gateway.links.lora.status import BoardSignal, RadioStatus
from gateway.service.control import Control
from gateway.store import meta
from gateway.store.schema import open_store
from gateway.store.session_views import SessionView
from gateway.store.times import CommitTimes
from gateway.uplink.manifest import SIGNED_BY, Manifest, Origin, Signature
from gateway.uplink.spool import Totals
from gateway.uplink.status import Status
from gateway.web.everything import everything
from gateway.web.source import Source
from gateway.web.uplink import UplinkState
from hil.judge import remains
from hil.judge.figures import BOUNDS, TROUBLES
from hil.observe import table
from hil.observe.history import COLUMNS, KEY
from tests.web import metrics_page

PAGE = Path(__file__).parents[2] / "hil" / "OUTPUTS.md"
TABLES = {
    "publications": table.ROW,
    "readings": table.READING,
    "quarantine": table.QUARANTINE,
    "conflicts": table.CONFLICTS,
}
"""Columns that the rig reads, by table of the ingest."""
JUDGES = {
    "publications": "judge/columns.py",
    "readings": "judge/readings.py",
    "quarantine": "judge/aside.py",
    "conflicts": "judge/aside.py",
}
FIGURES = "judge/figures.py"
OF_ROW = (*KEY, *COLUMNS, "spool_id", "payload")
OF_MANIFEST = ("schema", "gateway", "epoch", "number", "rows", "bytes", "sha256", *SIGNED_BY)
STORED = {
    "batch": "number first last rows bytes sha256 cut landed",
    "mark": "device incarnation highest",
    "subscription": "session filter",
    "session": "client",
    "flow": "session received sent released",
    "meta": "gateway epoch uplink.batches uplink.readings uplink.bytes uplink.failures",
}
"""Columns of the store that the judge compares, and keys of `meta`."""
WORDS = (
    *("everything.boards.last.name", "everything.boards.last.unit", "everything.boards.last.value"),
    *("everything.boards.name", "everything.gateway", "everything.problems", "status.problems"),
    *("everything.problems.part", "sessions.client", "status.gateway", "uplink.epoch"),
    "uplink.gateway",
)
"""Texts of the status that the judge compares."""
TOTALS = Totals(0, 0, 0, 0)
NOT_JUDGED: dict[str, dict[str, str]] = {
    "no bench runs `ingest summarise`; tests/ingest/jobs has its tests": {
        "table devices.": (
            "device incarnation site board firmware link first_seen last_seen listed status "
            "status_time current"
        ),
        "table quality.": "device incarnation day expected arrived late missing gaps duplicates",
    },
    "only the gateway reads it; if it is wrong, a check of the gateway or a promise fails": {
        "store batch_content.": "number spool_bytes keys",
        "store session.": "id expiry left incarnation user",
        "store flow.": "next",
        "store origin.": "kind key origin size",
        "store spool_check.": "last first sums",
        "store content_check.": "kind key sum",
        "store twin.": "kind key cells",
        "store meta.": (
            "axis boot flows members mistrusted running seen spool.boot spool.checked "
            "spool.gone spool.last swept uplink.counted uplink.identities uplink.rival uptime"
        ),
    },
    "options of a subscription; judge/sessions.py judges the deliveries": {
        "store subscription.": "options identifier",
    },
    "the anti-replay window; judge/links.py judges repeated publications": {
        "store mark.": "place window kept",
    },
    "the version of this tree": {
        "onceway_": "build_info",
        "everything.": "version",
        "sessions.": "version",
        "status.": "figures.version version",
    },
    "the gateway's own measure of memory": {
        "onceway_": "subscription_bytes memory_limit_bytes",
        "onceway_site_": "copies_kept_bytes",
    },
    "how many commits share a write is no promise": {
        "onceway_": "store_commit_seconds_count store_fsync_seconds_count",
    },
    "seconds that pass between the gateway's look and the rig's": {
        "onceway_": "job_age_seconds",
    },
    "the rig itself holds the log when it looks": {
        "onceway_": "store_log_held",
    },
    "what another broker sends has no count in the rig": {
        "onceway_bridge_": "received_total",
    },
    "years of life that a board estimates": {
        "onceway_": "board_eeprom_life_years",
    },
    "a board that has sampled all its readings falls silent": {
        "onceway_": "board_problem",
        "everything.": "missing",
        "status.": "missing",
    },
    "signal and airtime in the simulated air are no promise; hil/air/law.py measures the airtime": {
        "onceway_radio_": (
            "airtime_left_seconds frames_total air_seconds_total heard_seconds "
            "board_airtime_seconds rssi_dbm snr_db"
        ),
        "radios.": (
            "band boards connected counts factor frequency heard_s load network numbers path "
            "problem region rule told warnings workable"
        ),
    },
    "how often a site moves and copies; tests/site counts it": {
        "onceway_site_": (
            "certificate_days member_connected silent_total asked_total calls_total "
            "moved_in_total moved_out_total released_total lost_total superseded_total "
            "marked_total forward_dropped_total followers_refused_total "
            "retained_left_out_total given filters followers forward_waiting retained_waiting "
            "in_doubt copies_landed_total copies_damaged copies_full copies_behind "
            "copies_refusing"
        ),
        "control ": "site",
    },
    "how the gateway expects a board to send; tests/boards judges it": {
        "everything.boards.": "heard_s interval_s never paused_s port problem set state todo",
        "radios.boards.": "age airtime name rssi snr",
    },
    "a text for people": {
        "everything.ports.": "device heard_s port problem state",
        "everything.": "problems.todo problems.what restored uplink.error",
        "status.": "figures.uptime restored",
        "status.ports.": "device heard_s port problem state",
        "uplink.": "outage.error rival.what running way",
    },
    "follows from `problems`": {
        "everything.": "status",
        "status.": "status",
    },
    "what the client has sent in CONNECT; tests/runtime judges it": {
        "sessions.": "address away_s expiry_s user",
    },
    "how two brokers were compared; judge/states.py compares their messages": {
        "status.bridges.": (
            "agreed error last_error name oldest_s received retained retained_here "
            "retained_there server"
        ),
    },
    "an estimate": {
        "uplink.": "bytes_per_day lasts_s room_bytes",
    },
    "another request gives the same figures; tests/service has its own tests": {
        "control ": "site-sessions session clock boards readings heard",
    },
    "changes something; tests/service, tests/runtime and tests/boards have its tests": {
        "control ": (
            "end expect pause device notify-test reload listen log command bridge-again "
            "bridge-discard lend"
        ),
    },
}
"""The outputs that the judge does not compare: by reason, and by the begin of their names."""


def columns() -> Iterator[str]:
    """Yield the columns of all tables of the ingest."""
    found: dict[int, tuple[str, Layout]] = {}
    for module in pkgutil.walk_packages(gateway.ingest.__path__, "gateway.ingest."):
        if module.name.endswith(("jobs.stream", "jobs.script")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Layout):
                found[id(value)] = name.lower(), value
    for name, layout in sorted(found.values(), key=lambda item: item[0]):
        yield from (f"table {name}.{column}" for column, _, _ in layout.columns)


def of_batches() -> Iterator[str]:
    """Yield the columns of a batch's file, and the keys of its manifest."""
    yield from (f"batch {name}" for name in SCHEMA.names)
    manifest = Manifest(Origin("site", "0a1b2c3d"), 1, 1, 1, "")
    yield from (f"manifest {key}" for key in json.loads(manifest.to_json(Signature("", ""))))


def of_store() -> Iterator[str]:
    """Yield the columns of the gateway's store, and the keys of its table `meta`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_store(Path(folder), "site")) as store,
    ):
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (name,) in store.execute(tables).fetchall():
            if name != "meta":
                rows = store.execute(f"PRAGMA table_info({name})").fetchall()
                yield from (f"store {name}.{row[1]}" for row in rows)
        kept = {key for (key,) in store.execute("SELECT key FROM meta")}
    yield from (f"store meta.{key}" for key in sorted(kept | meta.VALUES.keys()))


def of_status() -> Iterator[str]:
    """Yield the metrics, the keys of `onceway uplink status --json`, the requests to the control
    socket, and the keys of the rows that the rig asks for.
    """
    with tempfile.TemporaryDirectory() as folder:
        families = metrics_page.families(Path(folder))
        source = _source(Path(folder))
        fake: Any = SimpleNamespace(_source=source, _engine=SimpleNamespace(broker=source.broker))
        fake._spool = lambda: Control._spool(fake)
        rows = {
            "status": asyncio.run(anext(Control._status(fake, {}))),
            "everything": everything(source, UplinkState(True, False, 1, 1, 1, TOTALS)),
            "uplink": _status().as_dict(),
            "sessions": dict.fromkeys(field.name for field in fields(SessionView)),
            "radios": dict.fromkeys(field.name for field in fields(RadioStatus)),
            "radios.boards": dict.fromkeys(field.name for field in fields(BoardSignal)),
        }
    for family in families:
        ends = metrics_page.SUFFIX.get(family.type, "")
        names = {sample.name for sample in family.samples} or {f"{family.name}{ends}"}
        yield from sorted(names - {f"{family.name}_bucket"})
    yield from sorted({name for what, row in rows.items() for name in _keys(what, row)})
    yield from ("sessions", "radios")
    yield from (f"control {name}" for name in Control.REQUESTS if name not in rows)


def _status() -> Status:
    """Return the status of an uplink in an outage, with another gateway of its name."""
    known: dict[str, Any] = {"sent": TOTALS, "outage": {"since": 1, "error": ""}}
    known["rival"] = {"seen": 1, "what": ""}
    return Status(**{field.name: None for field in fields(Status)} | known)


def _source(folder: Path) -> Source:
    """Return a gateway with a board, a port and a bridge."""
    expected = MagicMock(states={"uno-1": MagicMock()}, problems=[])
    expected.heard_ago.return_value = expected.paused_for.return_value = 1.0
    expected.state_of.return_value = MagicMock(interval=1.0)
    expected.value_of.return_value = {"name": "", "value": 1, "unit": ""}
    port = MagicMock(path="", device=None, problem=None)
    return Source(
        Broker(Config.model_validate({"uplink": {"landing": "file:///x"}}), Recovered()),
        CommitTimes(),
        lambda: 0.0,
        lambda: [port],
        folder,
        expected=expected,
        bridges=lambda: [BridgeStatus("there")],
    )


def _keys(name: str, value: Any) -> Iterator[str]:
    """Yield the names of all parts of a row that have no parts themselves."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield name
        value = value[0]
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _keys(f"{name}.{key}", part)
    else:
        yield name


def judged() -> dict[str, str]:
    """Return the module of the rig that compares each output, by output."""
    found = {f"table {name}.{column}": JUDGES[name] for name, of in TABLES.items() for column in of}
    found |= dict.fromkeys((f"batch {name}" for name in OF_ROW), "judge/columns.py")
    found |= dict.fromkeys((f"manifest {key}" for key in OF_MANIFEST), "observe/landing.py")
    for name, of in STORED.items():
        found |= dict.fromkeys((f"store {name}.{column}" for column in of.split()), FIGURES)
    found |= dict.fromkeys((f"store meta.{key}" for key in TROUBLES), FIGURES)
    return found | dict.fromkeys((*BOUNDS, *WORDS), FIGURES)


def outputs() -> Iterator[str]:
    """Yield all outputs. Tables that must be empty at the end have no columns."""
    yield from columns()
    yield from of_batches()
    empty = {*remains.EMPTY, *remains.ALONE}
    yield from (one for one in of_store() if one.split()[1].partition(".")[0] not in empty)
    yield from of_status()


def not_judged() -> dict[str, str]:
    """Return the reason of each output of NOT_JUDGED, by output."""
    return {
        begin + end: why
        for why, names in NOT_JUDGED.items()
        for begin, ends in names.items()
        for end in ends.split()
    }


def unlisted() -> list[str]:
    """Return the outputs that are neither judged nor in NOT_JUDGED."""
    listed = judged().keys() | not_judged().keys()
    return [name for name in outputs() if name not in listed]


def page() -> str:
    """Return the page: how many outputs each module judges, and those that are not judged."""
    known, excused, every = judged(), not_judged(), list(dict.fromkeys(outputs()))
    rows = []
    for module in sorted(set(known.values())):
        names = [f"`{name}`" for name in every if known.get(name) == module]
        rows.append(f"| `{module}` | {', '.join(names)} |")
    others: dict[str, list[str]] = {}
    for name in every:
        if name not in known:
            others.setdefault(excused[name], []).append(f"`{name}`")
    left_out = [f"| {', '.join(names)} | {why} |" for why, names in others.items()]
    return _HEAD + "\n".join(rows) + _NOT + "\n".join(left_out) + "\n"


_HEAD = """# Outputs of the product

Written by `make docs` from the product. Each column of its tables, of the files of a batch and of
its store, each metric, and each key of its status is here. Columns of tables of the store that must
be empty at the end of a run (`judge/remains.py`) are left out. A test fails if an output is in
neither list.

## Judged

| by | outputs |
| --- | --- |
"""
_NOT = """

## Not judged

| outputs | reason |
| --- | --- |
"""

if __name__ == "__main__":
    PAGE.write_text(page())
