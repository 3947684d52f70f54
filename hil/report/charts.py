"""Charts of a report: publications at each hop and faults over time, delays, CPU and memory. In:
findings. Out: SVG elements.
"""

from collections.abc import Iterator
from itertools import pairwise

from hil.observe.history import HOPS
from hil.report.findings import Findings
from hil.svg import Chart

COLOURS = dict(zip(HOPS, "abcd", strict=True))
BINS = 30
MOST_POINTS = 400  # points of a line; more would only make the page large


def charts(found: Findings) -> Iterator[str]:
    if any(found.arrivals.values()):
        yield _progress(found).element()
    if found.faults:
        yield _timeline(found).element()
    if found.delays:
        yield _delays(found).element()
    for name, samples in found.usage.items():
        if len(samples) > 1:
            yield _memory(found, name).element()
            yield _cpu(found, name).element()


def _progress(found: Findings) -> Chart:
    """Return a chart of the cumulative publications at each hop."""
    most = max(map(len, found.arrivals.values()))
    named = ", ".join(
        f"{hop} {name}"
        for hop, name in zip(HOPS, ("blue", "orange", "green", "violet"), strict=True)
        if found.arrivals[hop]
    )
    chart = Chart(f"Publications: {named}", (0, found.seconds), (0, most), "time (s)", "seen")
    for hop, times in found.arrivals.items():
        points = [(0.0, 0.0), *((t, float(number)) for number, t in enumerate(times, 1))]
        chart.line(points[:: max(1, len(points) // MOST_POINTS)] + points[-1:], COLOURS[hop])
    return chart


def _timeline(found: Findings) -> Chart:
    """Return a chart with a row for each kind of fault, and a mark for each fault. A band in the
    background shows when a line was down.
    """
    kinds = sorted({fault.kind for fault in found.faults.values()})
    rows = {kind: len(kinds) - number - 0.5 for number, kind in enumerate(kinds)}
    chart = Chart(
        "Faults, and when a line was down", (0, found.seconds), (0, len(kinds)), "time (s)", ""
    )
    for line, turns in sorted(found.links.items()):
        ends = [t for t, _ in turns[1:]] + [found.seconds]
        chart.bands(
            (t, end, f"{line} closed")
            for (t, is_open), end in zip(turns, ends, strict=True)
            if not is_open
        )
    chart.marks(
        (fault.t, rows[fault.kind], f"{fault.t:.1f} s {fault.id}: {fault.evidence}")
        for fault in found.faults.values()
        if fault.t is not None
    )
    chart.rows(rows)
    return chart


def _delays(found: Findings) -> Chart:
    longest = found.delays[-1] or 1.0
    bins = [0] * BINS
    for delay in found.delays:
        bins[min(BINS - 1, int(delay / longest * BINS))] += 1
    chart = Chart(
        "Delay from sample to claim", (0, longest), (0, max(bins)), "delay (s)", "publications"
    )
    chart.bars(
        (number * longest / BINS, (number + 1) * longest / BINS, count)
        for number, count in enumerate(bins)
        if count
    )
    return chart


def _memory(found: Findings, name: str) -> Chart:
    samples = found.usage[name]
    chart = Chart(
        f"Memory of {name}",
        (0, found.seconds),
        (0, max(one.memory for one in samples) / 1e6 * 1.1),
        "time (s)",
        "MB",
    )
    chart.dots(
        ((one.t, one.memory / 1e6) for one in samples[:: max(1, len(samples) // MOST_POINTS)]), "d"
    )
    return chart


def _cpu(found: Findings, name: str) -> Chart:
    """Return a chart of a process's CPU use. Each dot is the mean use between two samples."""
    samples = found.usage[name]
    step = max(1, len(samples) // MOST_POINTS)
    pairs = [
        (one, other)
        for one, other in pairwise(samples[::step])
        if one.pid == other.pid and other.t > one.t
    ]
    shares = [(other.t, 100 * (other.cpu - one.cpu) / (other.t - one.t)) for one, other in pairs]
    most = max((share for _, share in shares), default=0.0) or 1.0
    chart = Chart(f"CPU of {name}", (0, found.seconds), (0, most * 1.1), "time (s)", "% of a core")
    chart.dots(shares, "a")
    return chart
