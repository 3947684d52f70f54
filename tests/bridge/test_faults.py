"""The table of faults in the guide of bridges."""

from pathlib import Path

from tests.bridge.faults import FAULTS, row

GUIDE = Path(__file__).parents[2] / "gateway/bridge/README.md"


def test_guide_has_a_row_for_each_fault_and_no_other() -> None:
    lines = GUIDE.read_text().splitlines(keepends=True)
    rows = lines[lines.index(row("fault", "mosquitto's", "this one")) + 1 :][: len(FAULTS)]
    assert [line[4:46].rstrip() for line in rows] == list(FAULTS)
    assert all(line[60:].strip().count("/") == 2 for line in rows)
