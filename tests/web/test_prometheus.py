"""The alert rules and the dashboard use only metrics that a gateway has."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.bridge.status import BridgeStatus
from gateway.broker.broker import Broker
from gateway.broker.store_rows import Recovered
from gateway.config import Config
from gateway.links.lora.status import BoardSignal, RadioStatus
from gateway.store.times import CommitTimes
from gateway.web.metrics import GatewayCollector
from gateway.web.source import Source
from tests.web import metrics_page

FOLDER = Path(__file__).parents[2] / "gateway/web/prometheus"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "grafana.json"
_ENDS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [*shown, ALERTS.read_text()]


@pytest.fixture
def metrics(tmp_path: Path) -> set[str]:
    return {
        family.name + end
        for family in metrics_page.families(tmp_path)
        for end in _ENDS[family.type]
    }


def test_every_metric_named_by_dashboard_and_alerts_exists(metrics: set[str]) -> None:
    named = {name for text in expressions() for name in re.findall(r"onceway_\w+", text)}
    assert len(named) > 20
    assert named - metrics == set()


def test_each_alert_names_the_problem_and_the_remedy() -> None:
    _, *rules = ALERTS.read_text().split("- alert: ")
    assert len(rules) >= 10
    for rule in rules:
        assert re.search(r"\n +summary: .+\n +description: .+", rule), rule


def test_radio_metrics_have_airtime_frames_and_signal_of_each_board(tmp_path: Path) -> None:
    boards = [
        BoardSignal("roof-1", 4.0, -91.0, -2.5, 3.5),
        BoardSignal("roof-2", 9.0, None, None, 0.0),
    ]
    counts = {"answered": 7, "bad tag": 1}
    radio = RadioStatus(
        *("/dev/m", True, "", None, "", 1.5, 360.0, counts, ["roof-1"], boards),
        band="P",
        heard_s=7.5,
        sent_s=2.5,
    )
    broker = Broker(Config(), Recovered())
    source = Source(
        broker, CommitTimes(), lambda: 0.0, lambda: [], tmp_path, radios=lambda: [radio]
    )
    told = {
        (sample.name.removeprefix("onceway_radio_"), *sample.labels.values()): sample.value
        for family in GatewayCollector(source, None).collect()
        for sample in family.samples
        if sample.name.startswith("onceway_radio_")
    }
    assert told == {
        ("open", "/dev/m"): 1,
        ("boards", "/dev/m"): 1,
        ("airtime_seconds", "/dev/m"): 1.5,
        ("airtime_limit_seconds", "/dev/m"): 360,
        ("airtime_left_seconds", "/dev/m"): 358.5,
        ("air_seconds_total", "/dev/m", "P", "up"): 7.5,
        ("air_seconds_total", "/dev/m", "P", "down"): 2.5,
        ("frames_total", "/dev/m", "answered"): 7,
        ("frames_total", "/dev/m", "bad tag"): 1,
        ("heard_seconds", "roof-1"): 4,
        ("heard_seconds", "roof-2"): 9,
        ("board_airtime_seconds", "roof-1"): 3.5,
        ("board_airtime_seconds", "roof-2"): 0,
        ("rssi_dbm", "roof-1"): -91,
        ("snr_db", "roof-1"): -2.5,
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True)


def test_bridge_metrics_count_messages_set_aside(tmp_path: Path) -> None:
    bridge = BridgeStatus(
        "cloud",
        "mqtts://far",
        None,
        0,
        0,
        1,
        0,
        0,
        0,
        set_aside=5,
        aside_lost=2,
        aside=3,
        unconfirmed=4,
        not_taken=6,
        looped=7,
    )
    broker = Broker(Config(), Recovered())
    source = Source(
        broker, CommitTimes(), lambda: 0.0, lambda: [], tmp_path, bridges=lambda: [bridge]
    )
    told = {
        sample.name: sample.value
        for family in GatewayCollector(source, None).collect()
        for sample in family.samples
        if sample.labels.get("bridge") == "cloud"
    }
    assert told["onceway_bridge_aside"] == 3
    assert told["onceway_bridge_set_aside_total"] == 5
    assert told["onceway_bridge_aside_lost_total"] == 2
    assert told["onceway_bridge_unconfirmed_total"] == 4
    assert told["onceway_bridge_not_taken_total"] == 6
    assert told["onceway_bridge_looped_total"] == 7


def test_each_metric_is_used_by_an_alert_or_the_dashboard_or_has_a_reason(tmp_path: Path) -> None:
    names = {
        family.name + metrics_page.SUFFIX.get(family.type, "")
        for family in metrics_page.families(tmp_path)
    }
    assert sorted(name for name in names if not metrics_page.users(name)) == []
    unused = [name for name in names if metrics_page.users(name) in metrics_page.UNUSED.values()]
    assert unused == [*metrics_page.UNUSED], "no reason for a metric that is used, or gone"


def test_each_panel_says_what_it_shows_at_a_place_of_its_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"][key] for key in "xyhw") for panel in panels]
    for number, (x, y, height, width) in enumerate(places):
        for other_x, other_y, other_height, other_width in places[:number]:
            beside = x >= other_x + other_width or other_x >= x + width
            assert beside or y >= other_y + other_height or other_y >= y + height
    assert all(panel.get("description") for panel in panels if panel["type"] != "row")


def test_metrics_reference_is_up_to_date(tmp_path: Path) -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(metrics_page.families(tmp_path)), (
        "run: python -m tests.web.metrics_page"
    )
