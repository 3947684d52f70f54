"""The rig's report in a real browser, Debian's Chromium (`make hil`): on a phone and on a wide
screen, in light and in dark.
"""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hil.report.findings import findings
from hil.report.html import page
from hil.traces.plot import plot
from hil.traces.recording import load, own_traces
from tests.hil.report.test_report import run

LOOK = """
const inside = document.querySelector("iframe").contentDocument;
const style = element => inside.defaultView.getComputedStyle(element);
const smallest = Math.min(...[...inside.querySelectorAll("svg text")]
  .map(text => text.getBoundingClientRect().height));
const seen = {
  width: inside.documentElement.scrollWidth,
  height: inside.documentElement.scrollHeight,
  background: style(inside.body).backgroundColor,
  ink: style(inside.body).color,
  charts: [...inside.querySelectorAll("svg")]
    .map(svg => Math.round(svg.getBoundingClientRect().width)),
  marks: inside.querySelectorAll("svg circle, svg path, svg rect").length,
  smallest,
  verdict: inside.querySelector(".verdict") ? inside.querySelector(".verdict").textContent : null,
};
document.body.textContent = "SEEN" + JSON.stringify(seen) + "SEEN";
"""
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"


def look(folder: Path, text: str, width: int, scheme: str) -> dict[str, Any]:
    """Open a page in a browser with a window of this width. Return the browser's measurements."""
    frame = (
        f'<iframe srcdoc="{html.escape(text)}"'
        f' style="width:{width}px;height:800px;border:0"></iframe>'
    )
    file = folder / "look.html"
    file.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><body>{frame}<script>onload = () =>"
        f" {{{LOOK}}}</script></body>"
    )
    argv = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        scheme,
    ]
    argv += [f"--window-size={width + 100},900", "--dump-dom", file.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    found = re.search("SEEN(.*)SEEN", done.stdout)
    assert found, done.stdout[:500] + done.stderr[-500:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [360, 1200])
def test_a_report_is_readable(tmp_path: Path, width: int, scheme: str) -> None:
    events = run(3)
    events[0].data["bench"]["title"] += "x" * 200
    seen = look(tmp_path, page(findings(events)), width, scheme)
    assert seen["verdict"] == "fails"
    assert seen["width"] <= width  # no sideways scrolling
    assert seen["height"] > 1000
    assert len(seen["charts"]) == 5
    assert all(300 <= chart <= 800 for chart in seen["charts"])
    assert seen["marks"] > 10
    assert seen["smallest"] >= 9  # px: size of letters in charts
    light = ("rgb(255, 255, 255)", "rgb(27, 39, 51)")
    dark = ("rgb(13, 17, 23)", "rgb(230, 237, 243)")
    assert (seen["background"], seen["ink"]) == (dark if scheme == DARK else light)


@pytest.mark.parametrize("name", sorted(own_traces()))
def test_a_drawn_trace_is_shown(tmp_path: Path, name: str) -> None:
    seen = look(tmp_path, f"<body>{plot(load(name))}", 600, LIGHT)
    assert seen["marks"] > 50
    assert seen["smallest"] >= 9
