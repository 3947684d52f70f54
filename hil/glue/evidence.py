"""Evidence of a fault of the glue, read where the fault acts. In: the log of a wire, the ledger of
a board. Out: counts of harms, and the number of a board's newest start.
"""

import json
from collections import Counter
from pathlib import Path


def harmed(wire_log: Path) -> Counter[str]:
    """Return the number of harms that a wire has caused so far, in both directions, by kind."""
    counts: Counter[str] = Counter()
    for line in wire_log.read_text().splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            report = json.loads(line)
            if report["event"] == "count":
                counts = Counter(report["up"]) + Counter(report["down"])
    return counts


def newest_start(ledger: Path) -> int:
    """Return the number of the start in which the board took its last sample; 0 without samples."""
    whole = [line for line in ledger.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return int(json.loads(whole[-1])["boot"]) if whole else 0
