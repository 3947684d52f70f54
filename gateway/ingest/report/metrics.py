"""The report as Prometheus metrics (text format 0.0.4).

In: a `Report`. Out: text, for the textfile collector of Prometheus's node_exporter. The alerting
rules are in `gateway/ingest/alerts.yml`.
"""

import os
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from gateway.errors import OncewayError
from gateway.ingest.report.report import REFUSED_DAYS, FeedReport, Report
from gateway.system.gateway_name import shown

Sample = tuple[dict[str, str], float | None]


def put(report: Report, file: Path) -> None:
    """Write the metrics to a file atomically. If `file` is `-`, print them. Raises OncewayError if
    the file cannot be written.
    """
    written = text(report, time.time())
    if str(file) == "-":
        print(written, end="")
        return
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        new.write_text(written)
        os.replace(new, file)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise OncewayError(f"cannot write the metrics ({error.strerror})", str(file)) from error


def text(report: Report, now: float) -> str:
    """Return the metrics as text. now: seconds since 1970."""
    lines: list[str] = []
    for name, (explanation, samples) in _metrics(report, now).items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [
            f"# HELP onceway_ingest_{name} {explanation}",
            f"# TYPE onceway_ingest_{name} {kind}",
        ]
        lines += [
            f"onceway_ingest_{name}{_labels(labels)} {value:.15g}"
            for labels, value in samples
            if value is not None
        ]
    return "\n".join([*lines, ""])


def _metrics(report: Report, now: float) -> dict[str, tuple[str, Iterable[Sample]]]:
    feeds = [(_name(one), one) for one in report.feeds]
    last = report.spark.get("ms", {}).get("triggerExecution")
    return {
        "feed_taken_batch": (
            "Number of the newest batch that the table has.",
            [(name, one.taken) for name, one in feeds],
        ),
        "feed_landed_batch": (
            "Number of the newest batch that landed without a gap before it.",
            [(name, one.landed) for name, one in feeds],
        ),
        "feed_gone": (
            "1: the landing place no longer has a batch of this feed.",
            [(name, one.is_gone) for name, one in feeds],
        ),
        "feed_lag_seconds": (
            "Age of the oldest landed batch that the table lacks; 0 if it lacks none.",
            [(name, one.lag_s or 0.0) for name, one in feeds],
        ),
        "feed_held": (
            "1: the feed is held; the report says why.",
            [(name, one.held is not None) for name, one in feeds],
        ),
        "feed_held_seconds": (
            "Time for which the feed has been held.",
            [(name, one.held_s) for name, one in feeds],
        ),
        "feed_rows": (
            "Publications in the table.",
            [(name, one.rows) for name, one in feeds],
        ),
        "feed_duplicates_total": (
            "Publications that arrived again, and were left out.",
            [(name, one.doubles) for name, one in feeds],
        ),
        "feed_quarantined_batches": (
            "Damaged batches that were not released yet.",
            [(name, one.quarantine) for name, one in feeds],
        ),
        "feed_last_rows_timestamp_seconds": (
            "Time at which rows of the feed were last added.",
            [(name, _seconds(one.at)) for name, one in feeds],
        ),
        "names_refused": (
            "Number of gateway names that a second gateway tried to use in the last"
            f" {REFUSED_DAYS} days.",
            [({}, len(report.refused))],
        ),
        "missing_sequences": (
            "Sequences that are missing between sequences of the table.",
            [({}, report.missing)],
        ),
        "devices_with_gaps": (
            "Devices with missing sequences.",
            [({}, len(report.devices))],
        ),
        "conflicts": (
            "Publications with the key of an earlier one, but another payload.",
            [({}, report.conflicts)],
        ),
        "stopped": (
            "1: the ingest has ended with an error, and has not run since; the report says why.",
            [({}, report.stopped is not None)],
        ),
        "job_running": (
            "1: the stream runs; 0: it has ended, or gives no sign of life.",
            [({}, None if report.job is None else report.job.running)],
        ),
        "job_silent": (
            "1: the stream has not ended cleanly, and gives no sign of life.",
            [({}, report.job is not None and report.job.state == "silent")],
        ),
        "table_flawed": (
            "1: the table cannot be read, or lacks rows; the report names the fault.",
            [({"table": one.name.rpartition("/")[2]}, bool(one.flaw)) for one in report.tables],
        ),
        "table_rows": (
            "Rows of the table.",
            [({"table": one.name.rpartition("/")[2]}, one.rows) for one in report.tables],
        ),
        "last_rows_timestamp_seconds": (
            "Time at which the ingest last added rows.",
            [({}, _seconds(report.last_rows))],
        ),
        "micro_batch_seconds": (
            "Duration of the last micro-batch.",
            [({}, None if last is None else last / 1000)],
        ),
        "report_timestamp_seconds": ("Time at which this report was written.", [({}, now)]),
    }


def _name(feed: FeedReport) -> dict[str, str]:
    gateway, _, epoch = feed.feed.partition("/")
    return {"gateway": gateway, "epoch": epoch}


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    """Return a label's value, escaped for use between quotes. Characters that cannot be printed are
    escaped as in messages (`shown`), because the format allows only UTF-8.
    """
    return shown(value).replace("\\", r"\\").replace('"', r"\"")


def _seconds(moment: str) -> float | None:
    """Return seconds since 1970 for ISO 8601, or None for an empty text."""
    return datetime.fromisoformat(moment).timestamp() if moment else None
