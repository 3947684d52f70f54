"""Write gateway/web/METRICS.md, the page of all metrics, from the collector: `python -m
tests.web.metrics_page`.

In: the metrics of a gateway with every part, the alert rules, and the dashboard. Out: a table with
the type, the labels, the meaning and the uses of each metric. A test compares the page with the
collector.
"""

import json
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from gateway.boards.expected import Expected
from gateway.bridge.status import BridgeStatus
from gateway.broker.broker import Broker
from gateway.broker.store_rows import Recovered
from gateway.config import Config
from gateway.store.times import CommitTimes
from gateway.uplink.spool import Totals
from gateway.web.metrics import _COPIES_GAUGES, GatewayCollector
from gateway.web.source import Source
from gateway.web.uplink import UplinkState

WEB = Path(__file__).parents[2] / "gateway" / "web"
PAGE = WEB / "METRICS.md"
ALERTS, DASHBOARD = WEB / "prometheus" / "alerts.yml", WEB / "prometheus" / "grafana.json"
SUFFIX = {"counter": "_total"}
UNUSED = {"onceway_uplink_readings_total": "queries that were made for 0.2.0"}
"""Metrics that neither an alert rule nor the dashboard uses, each with the reason why it exists."""

_HEAD = """# All metrics of a gateway

Written by `python -m tests.web.metrics_page`. `/metrics` has them in Prometheus's text format, with
those of the process (`process_…`). The last column names the alert rules of
[prometheus](prometheus) that use a metric, and the panels of its dashboard.

| metric | kind | labels | meaning | used by |
|---|---|---|---|---|
"""


def families(folder: Path) -> list[Metric]:
    """Return the metrics of a gateway with a site, an uplink, a bridge and a radio."""
    figures: defaultdict[str, int] = defaultdict(int)
    copies = defaultdict(int, dict.fromkeys(_COPIES_GAUGES, 0))
    here: dict[str, Any] = {"name": "attic", "until": "2035-01-01", "figures": figures}
    site: list[dict[str, Any]] = [
        here | {"connected": True, "problem": None, "copies": copies},
        {"name": "barn", "connected": True, "problem": None, "silent": 0},
    ]
    bridge = BridgeStatus("cloud", "mqtts://far", None, 0, 0, 0, 0, 0, 0)
    source = Source(
        Broker(Config(), Recovered()),
        CommitTimes(),
        lambda: 0.0,
        list,
        folder,
        expected=Expected(folder),
        bridges=lambda: [bridge],
        site=lambda: site,
    )
    uplink = UplinkState(True, False, 1, 1, 1, Totals(0, 0, 0, 0))
    return list(GatewayCollector(source, uplink).collect())


def labels(family: Metric) -> list[str]:
    named = getattr(family, "_labelnames", ())
    return sorted({*named, *(label for one in family.samples for label in one.labels)} - {"le"})


def users(name: str) -> str:
    """Return the alert rules and panels that use a metric, separated by commas. For an unused
    metric, return why it exists.
    """
    rules = re.split(r"- alert: ", ALERTS.read_text())[1:]
    word = re.compile(rf"\b{name}(_bucket|_sum|_count)?\b")
    found = [f"`{rule.split()[0]}`" for rule in rules if word.search(rule)]
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        if word.search(" ".join(target["expr"] for target in panel.get("targets", []))):
            found.append(f"panel “{panel['title']}”")
    if word.search(json.dumps(board["templating"])):
        found.append("list of gateways")
    return ", ".join(found) or UNUSED.get(name, "")


def page(found: list[Metric]) -> str:
    rows = []
    for family in sorted(found, key=lambda one: one.name):
        name = family.name + SUFFIX.get(family.type, "")
        names = ", ".join(labels(family))
        rows.append(
            f"| `{name}` | {family.type} | {names} | {family.documentation} | {users(name)} |\n"
        )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(families(Path(folder))))
