"""The state of a gateway and its boards as one object. In: a `Source`, last readings, the uplink's
state. Out: the answer to `/status` and `onceway status`.
"""

from typing import Any

from gateway import __version__
from gateway.boards.expected import NEVER
from gateway.payload.readings import iso
from gateway.web.overview import problems_and_remedies
from gateway.web.source import Source
from gateway.web.uplink import UplinkState

Row = dict[str, Any]


def everything(source: Source, uplink: UplinkState | None) -> Row:
    """Return the whole state. status: `ok` or `failing`. problems: `part`, `what` and `todo` of
    each problem.
    """
    broker = source.broker
    found = problems_and_remedies(source, uplink)
    return {
        "status": "failing" if found else "ok",
        "problems": found,
        "missing": [name for name, _ in source.expected.problems] if source.expected else [],
        "gateway": broker.config.gateway.name,
        "version": __version__,
        "uptime_s": broker.monotonic // 1_000_000,
        "clock": broker.utc is not None,
        "restored": source.restored,
        "restart": list(source.restart),
        "boards": [board_row(source, name) for name in _names(source)],
        "ports": port_rows(source),
        "spool": {
            "used": bool(broker.config.spooled),
            "messages": broker.spool.count,
            "bytes": broker.spool.size,
            "limit": broker.spool.limit,
            "age_s": source.spool_age_s,
        },
        "uplink": None if broker.config.uplink is None else _uplink(uplink),
    }


def port_rows(source: Source) -> list[Row]:
    """Return the serial ports seen so far. device: the connected board; a board without power
    counts as connected until its Keep Alive is over. heard_s: seconds since its last packet. state:
    the board's state, null if it is not registered.
    """
    broker, expected = source.broker, source.expected
    seen = {
        connection.peer.device.name: connection.seen
        for connection in broker.connections
        if connection.peer.device is not None
    }
    states = expected.states if expected is not None else {}
    return [
        {
            "port": port.path,
            "open": port.is_open,
            "device": port.device,
            "problem": port.problem,
            "heard_s": _rounded(broker.now - seen[port.device]) if port.device in seen else None,
            "state": states[port.device].word if port.device in states else None,
        }
        for port in source.ports()
    ]


def board_row(source: Source, name: str) -> Row:
    """Return the state of one expected board. interval_s: 0 if the board need not send, null if not
    known. heard_s: seconds since its last reading, null before the first one. set: whether a person
    set the interval. state: the same as on the page and in the metrics; `elsewhere` means that
    another gateway of the site judges the board.
    """
    expected = source.expected
    assert expected is not None  # noqa: S101 - each gateway has it
    state = expected.state_of(name)
    return {
        "name": name,
        "state": state.word,
        "problem": state.sentence or None,
        "todo": state.todo or None,
        "interval_s": None if state.interval is None else round(state.interval, 1),
        "never": state.interval == NEVER,
        "set": expected.wanted(name) is not None,
        "heard_s": _rounded(expected.heard_ago(name)),
        "paused_s": _rounded(expected.paused_for(name)) if state.word == "paused" else None,
        "port": expected.port_of(name),
        "last": expected.value_of(name),
    }


def last_rows(source: Source, device: str) -> list[Row]:
    """Return the last reading of each name of a board. device: empty for all boards. After a power
    cut, only the last stored value of each board is known.
    """
    rows = list(source.history.last(device)) if source.history is not None else []
    known = {row["device"] for row in rows}
    utc, expected = source.broker.utc, source.expected
    for name in [device] if device else _names(source):
        value = expected.value_of(name) if expected is not None else None
        if name not in known and expected is not None and value is not None:
            ago = expected.heard_ago(name)
            time = None if utc is None or ago is None else utc - int(ago * 1e6)
            rows.append({"device": name, **value, "time": iso(time), "ago_s": _rounded(ago)})
    return rows


def _names(source: Source) -> list[str]:
    return list(source.expected.states) if source.expected is not None else []


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _uplink(uplink: UplinkState | None) -> Row:
    if uplink is None:
        return {"known": False}
    return {
        "known": True,
        "running": uplink.running,
        "outage": uplink.outage,
        "error": uplink.error,
        "cut": uplink.cut,
        "landed": uplink.landed,
        "landed_at": uplink.landed_at,
        "messages": uplink.totals.messages,
        "readings": uplink.totals.messages,  # its name until 0.2.0
    }
