"""Progress of a job: bars on a terminal, a line per stage elsewhere, nothing with `--json`. With
ONCEWAY_PROGRESS=json: lines such as {"stage": "write", "share": 0.4}, for the gateway's page.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from provisioning import avrdude

_STAGES = {
    "connect": "waiting for the boot loader",
    "save": "saving its present firmware",
    "wipe": "emptying the EEPROM",
    "write": "writing",
    "verify": "reading back",
    "greet": "waiting for its greeting",
}


@contextmanager
def shown(quiet: bool) -> Iterator[avrdude.Progress]:
    """Yield the progress callback of one job. It writes to standard error, unless `quiet`."""
    console = Console(stderr=True)
    if os.environ.get("ONCEWAY_PROGRESS") == "json":
        yield _json_lines
    elif quiet:
        yield lambda stage, share: None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as bars:
            yield _bars(bars)
    else:
        yield _lines(console)


def _json_lines(stage: str, share: float) -> None:
    print(json.dumps({"stage": stage, "share": round(share, 3)}), file=sys.stderr, flush=True)


def _bars(bars: Progress) -> avrdude.Progress:
    tasks: dict[str, TaskID] = {}

    def draw(stage: str, share: float) -> None:
        if stage not in tasks:
            for earlier in tasks.values():
                bars.update(earlier, completed=1.0)
            tasks[stage] = bars.add_task(_STAGES[stage], total=1.0)
        bars.update(tasks[stage], completed=share)

    return draw


def _lines(console: Console) -> avrdude.Progress:
    printed: set[str] = set()

    def say(stage: str, share: float) -> None:
        if stage not in printed:
            printed.add(stage)
            console.print(_STAGES[stage])

    return say
