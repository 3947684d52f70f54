"""The health of a gateway. In: a `Source`. Out: problems as sentences; an empty list if there is
none.

A part counts as failing while devices or clients wait for it, or are refused because of it.
"""

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Any, Literal

from gateway import __version__
from gateway.broker.lack import FOR_GOOD
from gateway.links.serial_port import LENT
from gateway.system.amounts import amount, are
from gateway.system.causes import remedy
from gateway.system.last_backup import last_backup
from gateway.system.without_figures import without_figures
from gateway.web.source import Source

Part = Literal[
    "store",
    "spool",
    "publishers",
    "listeners",
    "clients",
    "serial",
    "boards",
    "radio",
    "site",
    "backup",
    "notify",
    "jobs",
    "clock",
]
BOARDS: Part = "boards"
"""The part whose problems are outside the gateway: a restart of the gateway repairs no board."""

UNTOLD: Part = "notify"
"""The part whose problems are notifications that could not be sent."""

BACKUP: Part = "backup"
"""The part for backups at the landing place."""

CLIENTS: Part = "clients"
"""The part for clients that fight for one identifier. Restarting the gateway does not help."""

CLOCK: Part = "clock"
"""The part for a clock that is not believed. Restarting the gateway does not help."""

MOST_NAMED = 10
"""Largest number of client identifiers that the problems of the part `clients` name."""

STUCK_S = 5.0
"""If a commit takes longer than this number of seconds, the disk counts as a problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem. part: a `Part`, or a part of `gateway/web/overview.py`. todo: the remedy, if it
    differs from the part's remedy. about: the subject, if the words in `what` may change while the
    problem lasts.
    """

    part: str
    what: str  # prose: JSON key
    todo: str = ""
    about: str = ""

    @property
    def id(self) -> str:
        """The identifier of the problem, the same from its beginning to its end."""
        return f"{self.part} {self.about or without_figures(self.what)}"

    def public(self) -> dict[str, str]:
        fields = {"part": self.part, "what": self.what}
        return fields | {"todo": self.todo} if self.todo else fields


def status(source: Source) -> dict[str, Any]:
    """Return the status for `gateway status`. `status`: `ok` or `failing`. `restored`: why this
    start treats the store as another generation, or null. `missing`: boards of the registry that do
    not send as expected.
    """
    missing = [name for name, _ in source.expected.problems] if source.expected else []
    return _status(source, problems(source)) | {"missing": missing}


def health(source: Source) -> dict[str, Any]:
    """Return the answer to `/healthz`: the status without the boards. A supervisor that restarts an
    unhealthy gateway must not do so because a board has no power.
    """
    return _status(source, gateway_problems(source))


def _status(source: Source, found: list[Problem]) -> dict[str, Any]:
    broker = source.broker
    return {
        "status": "failing" if found else "ok",
        "problems": [item.public() for item in found],
        "gateway": broker.config.gateway.name,
        "version": __version__,
        "uptime_s": broker.monotonic // 1_000_000,
        "restored": source.restored,
    }


def gateway_problems(source: Source) -> list[Problem]:
    """Return the problems of the gateway itself."""
    outside = (BOARDS, BACKUP, UNTOLD, CLIENTS, CLOCK)
    return [item for item in problems(source) if item.part not in outside]


def problems(source: Source) -> list[Problem]:
    """Return the problems of the gateway and its boards."""
    return [
        *_store(source),
        *_spool(source),
        *_publishers(source),
        *(Problem("listeners", text) for waiting in source.absent for text in waiting()),
        *_clients(source),
        *_serial(source),
        *_boards(source),
        *_radios(source),
        *_site(source),
        *_backup(source),
        *(Problem(UNTOLD, text) for failures in source.untold for text in failures()),
        *(
            Problem("jobs", text, job.todo, job.name)
            for job in source.jobs
            if (text := job.problem)
        ),
        *([] if (doubt := source.doubt()) is None else [Problem(CLOCK, doubt, about="doubt")]),
    ]


def _store(source: Source) -> list[Problem]:
    if lack := source.broker.disk_lack:
        why = (
            f"{lack}: {source.times.error}"
            if source.times.error
            else f"{lack} except for a reserve"
        )
        return [Problem("store", f"the store accepts no data ({why})", remedy(lack), "refuses")]
    if (waits := source.waits_s()) > STUCK_S:
        return [Problem("store", f"a commit has waited {waits:.0f} s for the disk")]
    return []


def _spool(source: Source) -> list[Problem]:
    spool = source.broker.spool
    if not source.broker.config.spooled or not (spool.full or spool.size >= spool.limit):
        return []
    return [
        Problem(
            "spool",
            f"the spool is full ({amount(spool.count, 'message')}, {spool.size:,} bytes): messages"
            " are refused until the uplink has landed some of them",
            about="full",
        )
    ]


def _publishers(source: Source) -> list[Problem]:
    """Return a problem if publishers are paused after a refused publication. The problem says how
    many there are, and how many of them reached which bound.
    """
    broker = source.broker
    found = broker.pauses.waiting(broker.now)
    if not found:
        return []
    count = found.total()
    subject = are(count, "publisher")
    why = [f"{bound.words if bound else FOR_GOOD} ({number:,})" for bound, number in found.items()]
    return [Problem("publishers", f"{subject} paused: {', '.join(sorted(why))}", about="paused")]


def _clients(source: Source) -> list[Problem]:
    """Return a problem for each client identifier that two clients fight for. Beyond MOST_NAMED,
    one problem counts the remaining identifiers.
    """
    found = sorted(source.broker.fights.present.items())
    named = [Problem(CLIENTS, text, about=client) for client, text in found[:MOST_NAMED]]
    if more := found[MOST_NAMED:]:
        text = f"{are(len(more), 'more client identifier')} used by two clients at once"
        named.append(Problem(CLIENTS, text))
    return named


def _radios(source: Source) -> list[Problem]:
    return [
        Problem("radio", f"{radio.path}: {radio.problem}", about=radio.path)
        for radio in source.radios()
        if radio.problem is not None
    ]


def _site(source: Source) -> list[Problem]:
    """Return the problems of the site. A silent member is a problem, because a client that
    reconnects waits for it for up to a second.
    """
    rows = source.site()
    if not rows:
        return []
    from gateway.site.problems import copies_problems  # only where there is a site

    return [
        *(
            Problem(
                "site",
                f"{row['name']}: {row['problem'] or 'there is no link to it'}",
                about=row["name"],
            )
            for row in rows
            if not row["connected"] or row["problem"]
        ),
        *(Problem("site", text) for text in copies_problems(rows[0].get("copies", {}))),
    ]


def _backup(source: Source) -> list[Problem]:
    note = last_backup(source.folder)
    problem = None if note is None else note.problem(source.folder, source.broker.utc)
    return [] if problem is None else [Problem(BACKUP, problem, about="last")]


def _boards(source: Source) -> list[Problem]:
    """Return the problems of boards: boards that do not send as expected, second boards under a
    name that is in use, and problems with publications and sensors.
    """
    expected = source.expected
    silent, refused_duplicates = (
        (expected.problems, expected.refused_duplicates) if expected is not None else ([], [])
    )
    reported = source.boards.problems(source.broker.monotonic) if source.boards is not None else []
    return [
        *(
            Problem("boards", state.sentence, state.todo, f"{name} {state.word}")
            for name, state in silent
        ),
        *(
            Problem(
                "boards",
                f"{name}: a second board with this name is refused at {port}: it has another key",
                f"Give it a name of its own: sudo onceway device add NAME --port {port}",
                f"{name} doubled",
            )
            for name, port in refused_duplicates
        ),
        *(Problem("boards", text, about=about) for about, text in reported),
    ]


def _serial(source: Source) -> list[Problem]:
    """Return a problem for each configured port that is not open, and for each port whose board
    does not hear the gateway (`unheard`). For a pattern, only ports that are plugged in and cannot
    be opened count. A pattern that matches no port is not a problem: if a board is expected there,
    `_boards` reports the board. A lent port is not a problem.
    """
    found = []
    ports = source.ports()
    # a port may be open under another of its names
    open_ports = {os.path.realpath(port.path) for port in ports if port.is_open}
    for section in source.broker.config.serial:
        mine = [
            port
            for port in ports
            if port.path == section.port
            or (
                fnmatchcase(port.path, section.port)
                and (port.is_open or os.path.lexists(port.path))
            )
        ]
        staying = [port for port in mine if port.problem != LENT]
        if len(staying) < len(mine) and not staying:
            continue  # a lent port is open again in a minute
        mine = staying
        if any(port.is_open for port in mine) or (has_magic(section.port) and not mine):
            dead = [
                port
                for port in mine
                if port.problem
                and not port.is_open
                and os.path.realpath(port.path) not in open_ports
            ]
            found += [
                Problem("serial", f"{port.path}: {port.problem}", about=port.path)
                for port in mine
                if port.unheard or (port in dead and Path(port.path).is_char_device())
            ]
            continue
        why = next((port.problem for port in mine if port.problem), "no such port")
        found.append(Problem("serial", f"{section.port}: {why}", about=section.port))
    return found
