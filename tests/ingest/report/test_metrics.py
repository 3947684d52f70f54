"""The report as metrics, and the alert rules for them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.errors import OncewayError
from gateway.ingest.dedup.gaps import DeviceGaps
from gateway.ingest.report.health import TableHealth
from gateway.ingest.report.job import Job
from gateway.ingest.report.metrics import put, text
from gateway.ingest.report.report import DEVICES_SHOWN, FeedReport, Report
from gateway.ingest.report.report import text as report_text

RULES = Path(__file__).parents[3] / "gateway" / "ingest" / "alerts.yml"
AT = "2026-01-02T03:04:05+00:00"
GOOD = FeedReport("site/0a", 7, 7, 700, 3, 0, AT)
HELD = FeedReport("twin/0b", 2, 4, 20, 0, 1, "", 7200.0, "twin/0b waits for batch 3", 3600.0)
GONE = FeedReport('odd"\\name/0c', 5, None, 50, 0, 0, AT)


def samples(report: Report) -> dict[tuple[str, str], float]:
    """Return the value of each sample, by metric and gateway."""
    return {
        (
            sample.name.removeprefix("onceway_ingest_"),
            sample.labels.get("gateway", ""),
        ): sample.value
        for family in text_string_to_metric_families(text(report, 1_767_400_000.5))
        for sample in family.samples
    }


def test_each_feed_has_what_the_report_says_of_it() -> None:
    gaps = [DeviceGaps("a", 7, 5, [(3, 4), (6, 8)]), DeviceGaps("b", 1, 2, [(1, 2)])]
    found = samples(Report([GOOD, HELD, GONE], gaps, spark={"ms": {"triggerExecution": 1500}}))
    feed = {
        name.removeprefix("feed_"): value for (name, one), value in found.items() if one == "twin"
    }
    assert feed == {
        "taken_batch": 2,
        "landed_batch": 4,
        "gone": 0,
        "lag_seconds": 7200,
        "held": 1,
        "held_seconds": 3600,
        "rows": 20,
        "duplicates_total": 0,
        "quarantined_batches": 1,
    }
    assert found["feed_last_rows_timestamp_seconds", "site"] == 1_767_323_045
    assert found["feed_gone", 'odd"\\name'] == 1
    assert ("feed_landed_batch", 'odd"\\name') not in found
    assert {name: found[name, ""] for name in ("missing_sequences", "devices_with_gaps")} == {
        "missing_sequences": 7,
        "devices_with_gaps": 2,
    }
    assert (found["conflicts", ""], found["micro_batch_seconds", ""]) == (0, 1.5)
    assert found["report_timestamp_seconds", ""] == 1_767_400_000.5


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (Report([GOOD]), None),
        (Report([]), "no gateway has landed a batch"),
        (Report([HELD]), "held: twin/0b waits for batch 3"),
        (Report([GONE]), "has no batch at the landing place any more"),
        (Report([GOOD], conflicts=1), "1 publication with the key of another"),
        (Report([GOOD], refused=[("site", "other-pi", AT)]), "another gateway named site"),
        (Report([GOOD], stopped="the ingest ended at noon"), "the ingest ended at noon"),
        (Report([GOOD], job=Job("silent", AT, AT)), "the ingest has been silent since "),
        (Report([GOOD], job=Job("ended", AT, AT)), None),
        (Report([GOOD], tables=[TableHealth("lake/readings", 1, "a file is gone")]), "a file is"),
        (Report([FeedReport("site/0a", 7, 8, 1, 0, 0, AT, 3599.0)]), None),
        (Report([FeedReport("site/0a", 7, 8, 1, 0, 0, AT, 3601.0)]), "3601 s behind, more than"),
        (Report([FeedReport("site/0a", 7, 7, 1, 0, 1, AT)]), "site/0a: 1 batch is in"),
        (Report([GOOD], [DeviceGaps("a", 7, 5, [(3, 7)])]), None),
        (Report([GOOD], [DeviceGaps("a", 7, 6, [(3, 8)])]), "6 sequences are missing, more"),
    ],
)
def test_each_problem_has_its_reason(report: Report, reason: str | None) -> None:
    problems = report.problems(3600, max_missing=5)
    assert bool(problems) is (reason is not None)
    assert reason is None or any(reason in text for text in problems)


def test_the_file_is_whole_or_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "onceway.prom"
    put(Report([GOOD]), file)
    put(Report([HELD]), file)
    assert 'gateway="twin"' in file.read_text()
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(OncewayError, match=r"none/onceway\.prom: cannot write the metrics"):
        put(Report([GOOD]), tmp_path / "none" / "onceway.prom")


def test_names_that_another_gateway_wanted_are_counted() -> None:
    assert samples(Report([GOOD]))["names_refused", ""] == 0
    assert samples(Report([GOOD], refused=[("site", "other-pi", AT)]))["names_refused", ""] == 1


def test_alert_rules_use_existing_metrics() -> None:
    report = Report([HELD, GONE], spark={"ms": {}}, tables=[TableHealth("/lake/publications", 1)])
    there = {name for name, _ in samples(report)}
    asked = set(re.findall(r"onceway_ingest_(\w+)", RULES.read_text()))
    assert asked <= there


CASES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'onceway_ingest_report_timestamp_seconds', values: '0+60x60 3600+0x120'}}
      - {{series: 'onceway_ingest_feed_lag_seconds{{gateway="a"}}', values: '0+60x180'}}
      - {{series: 'onceway_ingest_feed_lag_seconds{{gateway="b"}}', values: '5x180'}}
      - {{series: 'onceway_ingest_feed_held{{gateway="b"}}', values: '1x180'}}
      - {{series: 'onceway_ingest_feed_quarantined_batches{{gateway="b"}}', values: '2x180'}}
      - {{series: 'onceway_ingest_feed_gone{{gateway="b"}}', values: '0x180'}}
      - {{series: 'onceway_ingest_conflicts', values: '0x100 1x80'}}
    alert_rule_test:
      - {{eval_time: 50m, alertname: OncewayReportIsOld}}
      - eval_time: 3h
        alertname: OncewayReportIsOld
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {old}}}]
      - eval_time: 2h
        alertname: OncewayFeedLags
        exp_alerts: [{{exp_labels: {{severity: warning, gateway: a}}, exp_annotations: {lags}}}]
      - {{eval_time: 1h, alertname: OncewayFeedLags}}
      - {{eval_time: 3h, alertname: OncewayFeedIsGone}}
      - {{eval_time: 90m, alertname: OncewayTwoPayloadsOfOneKey}}
      - eval_time: 110m
        alertname: OncewayTwoPayloadsOfOneKey
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {twice}}}]
      - eval_time: 1h
        alertname: OncewayBatchInQuarantine
        exp_alerts: [{{exp_labels: {{severity: warning, gateway: b}}, exp_annotations: {bad}}}]
"""
OLD = {
    "summary": "The report of the ingest is older than an hour.",
    "description": (
        "The progress of the ingest is unknown. Look at onceway-ingest-report.service."
    ),
}
LAGS = {
    "summary": "A batch of a has waited for the ingest for more than an hour.",
    "description": "Does the ingest run (onceway-ingest.service)? What does its log say?",
}
TWICE = {
    "summary": "Two payloads arrived with one key.",
    "description": (
        "A device counts wrongly, or two devices have the same identity. The table _conflicts has"
        " the second payload."
    ),
}
BAD = {
    "summary": "2 damaged batches of b are in quarantine.",
    "description": "Repair them at the landing place, then run `onceway ingest release`.",
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is not here")
def test_prometheus_takes_the_metrics_and_the_rules_alarm_when_they_should(tmp_path: Path) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text(Report([GOOD, HELD, GONE]), 1.0),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    cases = tmp_path / "cases.yml"
    cases.write_text(CASES.format(rules=RULES, old=OLD, lags=LAGS, twice=TWICE, bad=BAD))
    done = subprocess.run(
        ["promtool", "test", "rules", str(cases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_text_names_some_devices_with_gaps_and_counts_the_others() -> None:
    gaps = [DeviceGaps(f"dev-{one}", 7, 1, [(3, 3)]) for one in range(DEVICES_SHOWN + 2)]
    lines = report_text(Report([GOOD], gaps)).splitlines()
    missing = [line for line in lines if line.startswith("missing: ")]
    assert len(missing) == DEVICES_SHOWN + 1
    assert missing[0] == "missing: 1 sequence of dev-0 (incarnation 7), the first 3"
    assert missing[-1] == "missing: sequences of 2 more devices (--json shows all)"
