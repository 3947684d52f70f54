"""Charts as SVG for reports and traces, made without a library. In: a chart's ranges, then bars,
lines, dots and bands in the units of its axes. Out: an `<svg>` element. Colours come from CSS
classes (`STYLE`), so that a chart is readable in light and in dark.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 520, 220  # small, so that its letters are large enough on a phone
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 28, 36
TICKS = 5
LETTER = 8  # width of a digit, at most

STYLE = """
svg { --ink: #1b2733; --faint: #c5ced6; --a: #0b6bcb; --b: #c2410c; --c: #15803d; --d: #7e22ce;
    font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --faint: #3d4854; --a: #58a6ff;
    --b: #ff8f5a; --c: #56d364; --d: #c59bff; } }
svg text { fill: var(--ink); } svg .grid { stroke: var(--faint); }
svg path { fill: none; stroke-width: 2; }
svg .a { stroke: var(--a); } svg .b { stroke: var(--b); } svg .c { stroke: var(--c); }
svg .d { stroke: var(--d); }
svg rect.a, svg circle.a { fill: var(--a); } svg rect.b, svg circle.b { fill: var(--b); }
svg rect.c, svg circle.c { fill: var(--c); } svg rect.d, svg circle.d { fill: var(--d); }
svg circle, svg rect { stroke: none; } svg rect.band { opacity: 0.25; }
"""
"""Classes a, b, c and d are four colours; a report has the legend."""


def ticks(low: float, high: float) -> list[float]:
    """Return about TICKS round numbers from `low` to `high`."""
    if high <= low:
        return [low]
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(slots=True)
class Chart:
    """A chart. x, y: lowest and highest value shown. Points outside are cut off at the edge."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str
    y_label: str
    _parts: list[str] = field(default_factory=list)
    _rows: dict[str, float] | None = None

    def bars(self, bars: Iterable[tuple[float, float, float]], colour: str = "a") -> None:
        """Add bars that stand on the bottom. bars: left x, right x and height of each."""
        for start, end, value in bars:
            x, top = self._x(start), self._y(value)
            self._rect(x, top, max(1.0, self._x(end) - x - 1), self._y(self.y[0]) - top, colour)

    def bands(self, bands: Iterable[tuple[float, float, str]], colour: str = "b") -> None:
        """Add bands over the chart's whole height, each from one x to another, with a tooltip."""
        for start, end, text in bands:
            x = self._x(start)
            self._rect(
                x,
                TOP,
                max(2.0, self._x(end) - x),
                HEIGHT - TOP - BOTTOM,
                f"{colour} band",
                text,
            )

    def line(self, points: Sequence[tuple[float, float]], colour: str = "a") -> None:
        if points:
            path = "L".join(f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in points)
            self._parts.append(f'<path class="{colour}" d="M{path}"/>')

    def dots(self, points: Iterable[tuple[float, float]], colour: str = "a") -> None:
        self._parts += [
            f'<circle class="{colour}" cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="1.5"/>'
            for x, y in points
        ]

    def marks(self, marks: Iterable[tuple[float, float, str]], colour: str = "b") -> None:
        """Add large dots at x, y, with a tooltip."""
        for x, y, text in marks:
            title = f"<title>{escape(text)}</title>"
            self._parts.append(
                f'<circle class="{colour}" cx="{self._x(x):.1f}" cy="{self._y(y):.1f}"'
                f' r="5">{title}</circle>'
            )

    def rows(self, names: Mapping[str, float]) -> None:
        """Show names on the y axis in place of its numbers, each at its value of y."""
        self._rows = dict(names)

    def element(self) -> str:
        """Return the `<svg>` element; the page or file around it holds STYLE."""
        bottom = HEIGHT - BOTTOM
        grid = [f'<path class="grid" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>']
        for value in ticks(*self.x):
            at, label = self._x(value), f"{value:g}"
            beyond = at + len(label) * LETTER / 2 > WIDTH
            place = (
                f'x="{WIDTH}" text-anchor="end"' if beyond else f'x="{at:.1f}" text-anchor="middle"'
            )
            grid.append(f'<text {place} y="{bottom + 15}">{label}</text>')
        for value in ticks(*self.y) if self._rows is None else ():
            grid.append(
                f'<text x="{LEFT - 6}" y="{self._y(value) + 4:.1f}"'
                f' text-anchor="end">{value:g}</text>'
            )
        labels = [
            f'<text x="{LEFT + 4}" y="{self._y(value) + 4:.1f}">{escape(name)}</text>'
            for name, value in (self._rows or {}).items()
        ]
        labels += [
            f'<text x="{LEFT}" y="16" font-weight="bold">{escape(self.title)}</text>',
            (
                f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}"'
                f' text-anchor="end">{escape(self.x_label)}</text>'
            ),
        ]
        if self.y_label:
            labels.append(
                f'<text x="{WIDTH - RIGHT}" y="16" text-anchor="end">{escape(self.y_label)}</text>'
            )
        size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
            f' aria-label="{escape(self.title)}">'
        )
        return "\n".join([head, *grid, *self._parts, *labels, "</svg>"])

    def _rect(
        self, x: float, y: float, width: float, height: float, classes: str, text: str = ""
    ) -> None:
        title = f"<title>{escape(text)}</title>" if text else ""
        self._parts.append(
            f'<rect class="{classes}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
            f' height="{height:.1f}">{title}</rect>'
        )

    def _x(self, value: float) -> float:
        return LEFT + _share(value, self.x) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - _share(value, self.y) * (HEIGHT - TOP - BOTTOM)


def _share(value: float, between: tuple[float, float]) -> float:
    low, high = between
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def stacked(charts: Sequence[Chart]) -> str:
    """Return one SVG file of charts one below the other."""
    height = HEIGHT * len(charts)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}">'
    )
    placed = [
        f'<g transform="translate(0 {number * HEIGHT})">{chart.element()}</g>'
        for number, chart in enumerate(charts)
    ]
    background = "@media (prefers-color-scheme: dark) { svg { background: #0d1117; } }"
    return "\n".join([head, f"<style>{STYLE}{background}</style>", *placed, "</svg>"]) + "\n"
