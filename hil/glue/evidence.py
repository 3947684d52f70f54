"""What shows that a fault of the glue happened: looked up where the harm was done.

In: the log of a wire, the ledger of a board. Out: counts of harms, and which start a board is in.
"""

import json
from collections import Counter
from pathlib import Path


def harmed(wire_log: Path) -> Counter[str]:
    """Harms that a wire has done so far, in both directions, by kind."""
    counts: Counter[str] = Counter()
    for line in wire_log.read_text().splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            said = json.loads(line)
            if said["event"] == "count":
                counts = Counter(said["up"]) + Counter(said["down"])
    return counts


def newest_start(ledger: Path) -> int:
    """The number of the start in which a board sampled last; 0 if it has not."""
    whole = [line for line in ledger.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return int(json.loads(whole[-1])["boot"]) if whole else 0
