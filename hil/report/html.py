"""Findings as one HTML page, which phones can show, too. It has no scripts, fonts or pictures."""

from collections.abc import Iterable, Sequence
from html import escape

from hil.judge.checker import Verdict
from hil.judge.coverage import guarded
from hil.observe.history import HOPS
from hil.report.charts import charts
from hil.report.findings import PERCENTILES, Findings
from hil.report.text import counted, offender, recording, sentence, way
from hil.svg import STYLE as CHART_STYLE

OFFENDERS_SHOWN = 200

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1b2733; --line: #d5dce3;
    --soft: #f3f6f9;
  --good: #15803d; --bad: #b91c1c; --doubt: #a16207; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --text: #e6edf3; --line: #30363d;
    --soft: #161b22;
  --good: #56d364; --bad: #ff7b72; --doubt: #e3b341; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--page);
    color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h1, p, li, summary { overflow-wrap: anywhere; }
.verdict { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; color: var(--page);
    font-weight: bold; }
.holds { background: var(--good); } .fails { background: var(--bad); }
    .unknown { background: var(--doubt); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
    vertical-align: top; }
th:last-child:nth-child(n+4), td:last-child:nth-child(n+4) { min-width: 12rem; padding-right: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
    } tr.missed td, p.missed { color: var(--bad); }
@media (max-width: 40rem) {
  .told { font-size: .8rem; }
  .told tr { display: grid; grid-template-columns: repeat(var(--short), minmax(0, 1fr));
      border-bottom: 1px solid var(--line); }
  .told tr > * { border: 0; padding-right: .2rem; overflow-wrap: anywhere; }
  .told tr > :last-child { grid-column: 1 / -1; }
  .told th:last-child { display: none; }
}
svg { width: 100%; max-width: 48rem; height: auto; display: block; margin: .5rem 0; }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; }
pre { overflow-x: auto; background: var(--soft); padding: .5rem; margin: .3rem 0; }
"""


def page(found: Findings) -> str:
    result = found.result
    kept = found.is_kept or result.verdict is not Verdict.HOLDS
    colour = result.verdict if kept else Verdict.UNKNOWN
    head = f"{escape(found.title)} <small>seed {found.seed}</small>"
    parts = [
        (
            f'<h1>{head}</h1><p><span class="verdict {colour}">{found.headline}</span>'
            f" <strong>{escape(sentence(found))}</strong></p><p>{escape(result.summary())}</p>"
        ),
        _list(result.reasons),
        "".join(f'<p class="missed">Limit not kept: {escape(one)}</p>' for one in found.exceeded),
        _section("Where the faults struck", _coverage(found)),
        *(
            _section(f"The last log lines of {name}", f"<pre>{escape(chr(10).join(lines))}</pre>")
            for name, lines in result.last_words.items()
        ),
        _section("Figures", _figures(found)),
        *charts(found),
        _section(f"Publications at each hop{_with_statuses(found)}", _hops(found)),
        _section("Gateways", _gateways(found)),
        _section("Faults", _faults(found)),
        _section("Lines", _lines(found)),
        _section("Recorded links", _recordings(found)),
        _section("Sent again", _again(found)),
        _section("Publications that are not ok", _offenders(found)),
        f"<p><small>Onceway {escape(found.version)}; {found.seconds:.0f} s</small></p>",
    ]
    meta = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{meta}<title>{escape(found.title)}:'
        f" {found.headline}</title><style>{STYLE}{CHART_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}" if body else ""


def _table(
    head: Sequence[str], rows: Iterable[Sequence[object]], classes: Sequence[str] = ()
) -> str:
    """Return a table. Columns of numbers are aligned to the right. classes: CSS class of each row.
    On a phone, the text of the last column is shown below its row if there are many columns.
    """

    listed = list(rows)
    numbers = [
        all(isinstance(row[column], int | float) for row in listed) for column in range(len(head))
    ]

    def line(tag: str, values: Sequence[object], kind: str = "") -> str:
        cells = [
            f"<{tag}{' class=n' if right else ''}>{escape(str(value))}</{tag}>"
            for value, right in zip(values, numbers, strict=True)
        ]
        return f"<tr{f' class={kind}' if kind else ''}>{''.join(cells)}</tr>"

    titles = line("th", head)
    body = [
        line("td", row, classes[number] if classes else "") for number, row in enumerate(listed)
    ]
    last_is_text = len(head) > 3 and not numbers[-1]
    kind = f' class="told" style="--short: {len(head) - 1}"' if last_is_text else ""
    return f'<div class="scroll"><table{kind}>{titles}{"".join(body)}</table></div>'


def _coverage(found: Findings) -> str:
    rows = guarded(found.coverage, found.asked)
    classes = ["" if hits else "missed" for _, _, hits, _ in rows]
    return _table(("fault", "window", "times hit", "guards"), rows, classes) if rows else ""


def _figures(found: Findings) -> str:
    rows: list[tuple[str, str]] = []
    if found.delays:
        parts = [
            f"{'worst' if share == 100 else f'p{share}'} {found.percentile(share):.1f} s"
            for share in PERCENTILES
        ]
        rows.append(("delay from sample to claim", ", ".join(parts)))
    if found.readings_per_s is not None and found.goodput is not None:
        share = (
            ""
            if found.line_share is None
            else f", {found.line_share:.0%} of the bytes that the boards sent"
        )
        rows.append(("QoS 2 publications into the store", f"{found.readings_per_s:.1f} per second"))
        rows.append(
            ("goodput of all lines", f"{found.goodput:.0f} bytes of payload per second{share}")
        )
    rows += [(f"{name}: CPU, memory", _used(found, name)) for name in found.usage]
    if (written := found.written_per_reading) is not None:
        rows.append(("written to disk per publication", f"{written:.0f} bytes"))
    return _table(("", ""), rows) if rows else ""


def _used(found: Findings, name: str) -> str:
    growth = found.growth(name)
    grown = "" if growth is None else f", {growth / 1e6:+.1f} MB in the second half of its life"
    return f"{found.cpu(name):.1f} s, {found.memory(name) / 1e6:.0f} MB{grown}"


def _with_statuses(found: Findings) -> str:
    statuses = counted(found.result.statuses, "status", "statuses")
    return f", with {statuses} of the boards" if found.result.statuses else ""


def _hops(found: Findings) -> str:
    ways = [publication.way for publication in found.result.publications]
    rows = [
        (hop, sum(bool(way[hop]) for way in ways), len(found.arrivals[hop]))
        for hop in HOPS
        if found.arrivals[hop]
    ]
    return _table(("hop", "publications", "times seen"), rows) if rows else ""


def _gateways(found: Findings) -> str:
    rows = [(name, *counts.values()) for name, counts in found.gateways.items()]
    head = ("gateway", "publications in its store", "landed", "gone with its card")
    return _table(head, rows) if rows else ""


def _faults(found: Findings) -> str:
    faults = sorted(found.faults.values(), key=lambda fault: (fault.t is None, fault.t))
    rows = [
        (
            "did not happen" if fault.t is None else f"{fault.t:.1f} s",
            fault.id,
            fault.kind,
            fault.place,
            fault.evidence,
        )
        for fault in faults
    ]
    classes = ["missed" if fault.t is None else "" for fault in faults]
    return _table(("when", "fault", "kind", "place", "evidence"), rows, classes) if rows else ""


def _lines(found: Findings) -> str:
    rows = []
    for line, directions in sorted(found.lines.items()):
        for direction, counts in directions.items():
            harms = ", ".join(
                f"{value} {name}"
                for name, value in counts.items()
                if name not in ("sent", "arrived", "dropped") and value
            )
            rows.append(
                (
                    line,
                    direction,
                    counts["sent"],
                    counts["arrived"],
                    counts["dropped"],
                    harms or "none",
                )
            )
    return (
        _table(("line", "direction", "bytes sent", "arrived", "dropped", "harms"), rows)
        if rows
        else ""
    )


def _recordings(found: Findings) -> str:
    return "".join(
        f"<p>{escape(recording(line, direction, replayed))}</p>"
        for (line, direction), replayed in sorted(found.replayed.items())
    )


def _again(found: Findings) -> str:
    rows = [
        (
            line,
            direction,
            counts["frames"],
            counts["frames_again"],
            counts["publishes"],
            counts["publishes_again"],
        )
        for line, directions in sorted(found.sent.items())
        for direction, counts in directions.items()
    ]
    return (
        _table(
            (
                "line",
                "direction",
                "frames of the link",
                "sent again",
                "PUBLISH packets",
                "with DUP",
            ),
            rows,
        )
        if rows
        else ""
    )


def _offenders(found: Findings) -> str:
    wrong, start = found.result.offenders, found.result.start
    parts = [
        f"<details><summary>{escape(offender(one))}</summary>"
        f"<pre>{escape(chr(10).join(way(one, start)))}</pre></details>"
        for one in wrong[:OFFENDERS_SHOWN]
    ]
    more = (
        f"<p>… and {len(wrong) - OFFENDERS_SHOWN} more</p>" if len(wrong) > OFFENDERS_SHOWN else ""
    )
    return "".join(parts) + more or "<p>None.</p>"
