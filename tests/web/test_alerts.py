"""promtool evaluates each alert rule of the gateways and of the centre. Each alert fires at its
fault, with the labels that its text uses. Just below its threshold, it does not fire.

In: the rules, and for each rule, time series of up to two days that make it fire, and series that
do not. The series have the same labels as `/metrics` and the ingest's report.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.access.logins import BackOff
from gateway.ingest.report.health import TableHealth
from gateway.ingest.report.job import Job
from gateway.ingest.report.metrics import text
from gateway.ingest.report.report import FeedReport, Report
from tests.web import metrics_page

ROOT = Path(__file__).parents[2]
RULES = {
    "gateway": ROOT / "gateway/web/prometheus/alerts.yml",
    "ingest": ROOT / "gateway/ingest/alerts.yml",
}
PORT, BRIDGE = '{port="/dev/ttyUSB0"}', '{bridge="cloud"}'
PORT_LABEL, BRIDGE_LABEL = {"port": "/dev/ttyUSB0"}, {"bridge": "cloud"}
LINK = "onceway_link_"
REFUSED = 'onceway_refused_total{request="connect",reason="bad_user_name_or_password"}'
EVERY_S = round(BackOff.LONGEST_S)
"""Longest pause, in seconds, that the gateway imposes on an address with wrong passwords. An
address that guesses for hours tries one password in this time.
"""


@dataclass(frozen=True)
class Case:
    """A test of one alert. fires: series with values minute by minute; at the end, the alert fires
    with `labels` and its severity. silent: series at which no alert in the file fires. hours:
    length of the series.
    """

    alert: str
    fires: dict[str, str]
    silent: dict[str, str]
    labels: dict[str, str]
    hours: float = 1


def case(name: str, fires: Any, silent: Any, hours: float = 1, **labels: str) -> Case:
    return Case(f"Onceway{name}", fires, silent, labels, hours)


def flag(name: str, metric: str, bad: int, **labels: str) -> Case:
    """Return a case for a rule over a metric that is 0 or 1. bad: the value at which the rule
    fires.
    """
    return case(name, {metric: f"{bad}x60"}, {metric: f"{1 - bad}x60"}, **labels)


def counter(name: str, metric: str, **labels: str) -> Case:
    """Return a case for a rule over a counter. The rule fires after one event."""
    return case(name, {metric: "7x54 8x6"}, {metric: "7x60"}, **labels)


def spool(bytes_: str) -> dict[str, str]:
    return {"onceway_spool_bytes": bytes_, "onceway_spool_limit_bytes": "1000000x480"}


def line(**rates: int) -> dict[str, str]:
    """Return the series of a port's counters. rates: increase per minute of each counter."""
    return {f"{LINK}{name}_total{PORT}": f"0+{rate}x180" for name, rate in rates.items()}


def commits(over_a_second: int) -> dict[str, str]:
    """Return series with a thousand commits per minute. over_a_second: how many of them take longer
    than a second.
    """
    bucket = "onceway_store_commit_seconds_bucket"
    fast = 1000 - over_a_second
    return {
        f'{bucket}{{le="1.0"}}': f"0+{fast}x60",
        f'{bucket}{{le="2.0"}}': "0+1000x60",
        f'{bucket}{{le="+Inf"}}': "0+1000x60",
    }


def waits(connected: int, waiting: str, sent: str) -> dict[str, str]:
    return {
        f"onceway_bridge_connected{BRIDGE}": f"{connected}x60",
        f"onceway_bridge_waiting{BRIDGE}": waiting,
        f"onceway_bridge_sent_total{BRIDGE}": sent,
    }


def late(seconds: int) -> dict[str, str]:
    return {
        f"onceway_bridge_connected{BRIDGE}": "1x60",
        f"onceway_bridge_oldest_seconds{BRIDGE}": f"{seconds}x60",
    }


def radio(used: int) -> dict[str, str]:
    return {
        f"onceway_radio_airtime_seconds{PORT}": f"{used}x60",
        f"onceway_radio_airtime_limit_seconds{PORT}": "360x60",
    }


DROPPED = 'onceway_messages_dropped_total{reason="%s"}'
GATEWAY = [
    flag("GatewayDown", 'up{job="onceway"}', 0, job="onceway"),
    flag("Unhealthy", "onceway_healthy", 0),
    flag(
        "BoardProblem",
        'onceway_board_problem{device="roof-1",cause="silent"}',
        1,
        device="roof-1",
        cause="silent",
    ),
    flag("StoreRefusesData", "onceway_store_writable", 0),
    counter("StoreFails", "onceway_store_failures_total"),
    case(
        "MessagesDropped",
        {DROPPED % "queue_full": "7x54 8x6"},
        {DROPPED % "queue_full": "7x60", DROPPED % "expired": "0+1x60"},
        reason="queue_full",
    ),
    flag("JobOverdue", 'onceway_job_overdue{job="checkpoint"}', 1, job="checkpoint"),
    case(
        "PublishersPaused",
        {'onceway_publishers_paused{bound="spool"}': "1x60"},
        {'onceway_publishers_paused{bound="spool"}': "0x57 1x3"},
    ),
    flag("NothingLands", "onceway_uplink_outage", 1),
    flag("NothingLands", "onceway_uplink_running", 0),
    flag("BridgeDown", f"onceway_bridge_connected{BRIDGE}", 0, **BRIDGE_LABEL),
    case("BridgeWaits", waits(1, "1x60", "9x60"), waits(1, "1x60", "0+1x60"), **BRIDGE_LABEL),
    case("BridgeWaits", waits(1, "1x60", "9x60"), waits(1, "0x50 1x10", "9x60"), **BRIDGE_LABEL),
    case("BridgeLate", late(181), late(180), **BRIDGE_LABEL),
    flag("BridgeRetainedDiffer", f"onceway_bridge_retained_differ{BRIDGE}", 1, **BRIDGE_LABEL),
    counter("BridgeDrops", f"onceway_bridge_dropped_total{BRIDGE}", **BRIDGE_LABEL),
    flag("BridgeSetsAside", f"onceway_bridge_aside{BRIDGE}", 1, **BRIDGE_LABEL),
    counter(
        "BridgeLosesWhatIsSetAside", f"onceway_bridge_aside_lost_total{BRIDGE}", **BRIDGE_LABEL
    ),
    case("SpoolFillsUp", spool("0+1000x480"), spool("200000x480"), hours=8),
    case("SpoolFillsUp", spool("0+1000x480"), spool("0+100x480"), hours=8),
    case(
        "DiskFillsUp",
        {"onceway_store_free_bytes": "10000000-10000x480"},
        {"onceway_store_free_bytes": "10000000-100x480"},
        hours=8,
    ),
    flag("PortClosed", f"{LINK}open{PORT}", 0, **PORT_LABEL),
    case(
        "BadLine",
        line(retransmissions=11, frames_sent=100),
        line(retransmissions=10, frames_sent=100),
        hours=3,
        **PORT_LABEL,
    ),
    case(
        "LinkErrors",
        line(crc_errors=6, malformed_frames=5, frames_received=100),
        line(crc_errors=5, malformed_frames=5, frames_received=100),
        hours=3,
        **PORT_LABEL,
    ),
    case(
        "LinkGivesUp",
        {f"{LINK}give_ups_total{PORT}": "0x10 1x10 2x10 3x10 4x20"},
        {f"{LINK}give_ups_total{PORT}": "0x10 1x10 2x40"},
        **PORT_LABEL,
    ),
    case(
        "BoardWearsOut",
        {f"onceway_board_eeprom_life_years{PORT}": "0x60"},
        {f"onceway_board_eeprom_life_years{PORT}": "1x60"},
        **PORT_LABEL,
    ),
    case(
        "ReadingsSetAside",
        {f"onceway_board_set_aside{PORT}": "0x1500 1x100"},
        {f"onceway_board_set_aside{PORT}": "1x1600"},
        hours=26,
        **PORT_LABEL,
    ),
    counter("TwoPayloads", "onceway_board_contradictions_total"),
    case("SlowDisk", commits(11), commits(9)),
    case(
        "LoginsFail",
        {REFUSED: f"0+{60 / EVERY_S:g}x90"},
        {REFUSED: "0x30 5x60"},
        hours=1.5,
        request="connect",
        reason="bad_user_name_or_password",
    ),
    case("AirtimeRunsOut", radio(289), radio(288), **PORT_LABEL),
    flag("ClockIsDoubted", "onceway_clock_doubted", 1),
    case(
        "SiteCertificateEnds",
        {"onceway_site_certificate_days": "29x60"},
        {"onceway_site_certificate_days": "30x60"},
    ),
    counter("DamagedRow", "onceway_uplink_held_total"),
]

FEED = '{gateway="site-1",epoch="0a"}'
FRESH = "onceway_ingest_report_timestamp_seconds"


def ingest(
    name: str, metric: str, fires: str, silent: str, hours: float = 1, **labels: str
) -> Case:
    """Return a case for a rule about a metric of the ingest's report. In this case, the report is
    made each minute.
    """
    fresh = {FRESH: "0+60x3000"}
    return case(name, {metric: fires} | fresh, {metric: silent} | fresh, hours, **labels)


A_FEED = {"gateway": "site-1", "epoch": "0a"}
CENTRE = [
    case("ReportIsOld", {FRESH: "0x70"}, {FRESH: "0+60x70"}, hours=70 / 60),
    case("ReportIsMissing", {"up": "1x70"}, {FRESH: "0+60x70"}, hours=70 / 60),
    ingest("IngestHasStopped", "onceway_ingest_stopped", "1x60", "0x60"),
    ingest("IngestIsSilent", "onceway_ingest_job_silent", "1x60", "0x60"),
    ingest(
        "TableIsFlawed",
        'onceway_ingest_table_flawed{table="readings"}',
        *("1x60", "0x60"),
        table="readings",
    ),
    ingest("FeedLags", f"onceway_ingest_feed_lag_seconds{FEED}", "3601x60", "3600x60", **A_FEED),
    ingest("FeedIsHeld", f"onceway_ingest_feed_held{FEED}", "1x60", "0x60", **A_FEED),
    ingest("NameIsTaken", "onceway_ingest_names_refused", "1x60", "0x60"),
    ingest("FeedIsGone", f"onceway_ingest_feed_gone{FEED}", "1x60", "0x60", **A_FEED),
    ingest(
        "GatewayIsSilent",
        f"onceway_ingest_feed_last_rows_timestamp_seconds{FEED}",
        *("0x1500", "3600x1500"),
        hours=24.5,
        gateway="site-1",
    ),
    ingest(
        "BatchInQuarantine",
        f"onceway_ingest_feed_quarantined_batches{FEED}",
        *("1x60", "0x60"),
        **A_FEED,
    ),
    ingest("SequencesAreMissing", "onceway_ingest_missing_sequences", "7x1500 8x120", "7x1620", 27),
    ingest("TwoPayloadsOfOneKey", "onceway_ingest_conflicts", "1x80 2x40", "2x120", 2),
]
CASES = {"gateway": GATEWAY, "ingest": CENTRE}


def labelled(name: str, tmp_path: Path) -> dict[str, set[str]]:
    """Return the labels of each metric. Prometheus itself makes the metric `up`."""
    if name == "gateway":
        found = {one.name: set(metrics_page.labels(one)) for one in metrics_page.families(tmp_path)}
        return found | {"up": {"job"}}
    at = "2026-01-02T03:04:05+00:00"
    report = Report(
        [FeedReport("site-1/0a", 7, 7, 700, 0, 0, at)],
        tables=[TableHealth("lake/readings", 1)],
        job=Job("silent", at, at),
    )
    told = text_string_to_metric_families(text(report, 1.0))
    return {one.name: {key for each in one.samples for key in each.labels} for one in told} | {
        "up": set()
    }


def rules(name: str) -> dict[str, str]:
    """Return the text of each rule, by the name of its alert."""
    _, *found = RULES[name].read_text().split("- alert: ")
    return {rule.split()[0]: rule for rule in found}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_has_a_case_with_labels_that_metrics_have(name: str, tmp_path: Path) -> None:
    assert [*dict.fromkeys(one.alert for one in CASES[name])] == [*rules(name)]
    labels = labelled(name, tmp_path)
    for one in CASES[name]:
        for series in {**one.fires, **one.silent}:
            metric = re.sub(r"_(total|bucket)$", "", series.partition("{")[0])
            assert set(re.findall(r'(\w+)="', series)) - {"le"} == labels[metric], series
        told = set(re.findall(r"\$labels\.(\w+)", rules(name)[one.alert]))
        assert told <= {"instance", *one.labels}, one.alert


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is not here")
@pytest.mark.parametrize("name", RULES)
def test_each_rule_fires_for_what_it_names_and_for_nothing_else(name: str, tmp_path: Path) -> None:
    """promtool evaluates all rules every five minutes. Every minute, it would take 14 s."""
    tests = [one for case_ in CASES[name] for one in evaluations(case_)]
    file = tmp_path / "cases.json"  # promtool reads YAML, which includes JSON
    file.write_text(
        json.dumps({"rule_files": [str(RULES[name])], "evaluation_interval": "5m", "tests": tests})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def evaluations(one: Case) -> list[dict[str, Any]]:
    """Return two tests in promtool's format. A test fails if another alert fires."""
    severity = next(
        found[1]
        for name in RULES
        for alert, rule in rules(name).items()
        if alert == one.alert and (found := re.search(r"severity: (\w+)", rule))
    )
    firing = {"alertname": one.alert, "alertstate": "firing", "severity": severity, **one.labels}
    labels = "{" + ", ".join(f'{key}="{value}"' for key, value in firing.items()) + "}"
    return [
        {
            "name": f"{one.alert}: {'fires' if samples else 'is silent'}",
            "interval": "1m",
            "input_series": [
                {"series": series, "values": values} for series, values in given.items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'ALERTS{alertstate="firing"}',
                    "eval_time": f"{round(one.hours * 60)}m",
                    "exp_samples": samples,
                }
            ],
        }
        for given, samples in (
            (one.fires, [{"labels": f"ALERTS{labels}", "value": 1}]),
            (one.silent, []),
        )
    ]
