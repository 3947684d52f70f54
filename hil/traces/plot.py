"""A trace as a drawing. In: a trace. Out: an SVG file: loss and outages over time, signal strength
over time, lengths of bursts.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

from hil.svg import Chart, stacked
from hil.traces.trace import Trace

SLOTS = 120  # stretches of time in which loss and signal strength are averaged
UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (0, 1, "seconds"))


def plot(trace: Trace) -> str:
    unit, name = next((unit, name) for least, unit, name in UNITS if trace.seconds >= least)
    width = max(trace.seconds, 1e-9) / SLOTS
    charts = [_loss(trace, width, unit, f"time ({name})")]
    if any(frame.rssi is not None for frame in trace.frames):
        charts.append(_signal(trace, width, unit, f"time ({name})"))
    return stacked([*charts, _bursts(trace)])


def _loss(trace: Trace, width: float, unit: float, label: str) -> Chart:
    share = trace.lost / trace.sent if trace.sent else 0
    chart = Chart(
        f"{trace.name}: {share:.1%} of {trace.sent} frames lost",
        (0, trace.seconds / unit),
        (0, 100),
        label,
        "lost (%)",
    )
    slots: dict[int, list[bool]] = defaultdict(list)
    for t, arrived in trace.fates():
        slots[int(t / width)].append(arrived)
    chart.bands(
        (
            o.t / unit,
            (o.t + o.seconds) / unit,
            f"silent for {o.seconds:.0f} s, {o.lost} frames lost",
        )
        for o in trace.outages()
    )
    chart.bars(
        (slot * width / unit, (slot + 1) * width / unit, 100 * fates.count(False) / len(fates))
        for slot, fates in slots.items()
    )
    return chart


def _signal(trace: Trace, width: float, unit: float, label: str) -> Chart:
    means = list(_means(trace, width))
    low, high = min(rssi for _, rssi in means), max(rssi for _, rssi in means)
    chart = Chart(
        "Signal strength of the frames that arrived",
        (0, trace.seconds / unit),
        (low - 2, high + 2),
        label,
        "RSSI (dBm)",
    )
    chart.dots(((t / unit, rssi) for t, rssi in means), "c")
    return chart


def _means(trace: Trace, width: float) -> Iterator[tuple[float, float]]:
    slots: dict[int, list[float]] = defaultdict(list)
    for frame in trace.frames:
        if frame.rssi is not None:
            slots[int(frame.t / width)].append(frame.rssi)
    for slot, values in slots.items():
        yield (slot + 0.5) * width, fmean(values)


def _bursts(trace: Trace) -> Chart:
    bursts = trace.bursts()
    chart = Chart(
        "Lengths of bursts",
        (0.5, max(bursts, default=1) + 0.5),
        (0, max(bursts.values(), default=1)),
        "frames lost in a row",
        "bursts",
    )
    chart.bars((length - 0.5, length + 0.5, count) for length, count in bursts.items())
    return chart
