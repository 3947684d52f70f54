"""Each logger of the gateway that logs at level info is either shown by default or left out on
purpose. If a logger moves to another file, its name changes, but it must not become silent by
accident.
"""

from pathlib import Path

import gateway
from gateway.service.cli import _TALKATIVE

ROOT = Path(gateway.__file__).parent
QUIET = {
    "gateway.boards.reports": "one line a command",
    "gateway.runtime.engine": "one line a client",
    "gateway.site.wiring.sessions": "two lines a session move",
}
OTHER_PROGRAMS = ("gateway.ingest.", "gateway.publisher.", "gateway.uplink.")


def informed() -> set[str]:
    """Return the names of all loggers in the gateway's process that log at level info."""
    files = [file for file in ROOT.rglob("*.py") if "log.info(" in file.read_text()]
    names = {".".join(("gateway", *file.relative_to(ROOT).with_suffix("").parts)) for file in files}
    return {name for name in names if not name.startswith(OTHER_PROGRAMS)}


def test_each_logger_with_information_is_shown_or_quiet_on_purpose() -> None:
    assert informed() == {*_TALKATIVE, *QUIET}
