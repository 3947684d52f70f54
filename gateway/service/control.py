"""The control socket: requests of the command line to a running gateway.

The socket is `DATA/control.sock`. Only the gateway's own account and root may use it. With the
Debian package it is in /run/onceway, and members of the group onceway-admin may use it, too. In:
one request, a line of JSON such as `{"do": "end", "client": "c1"}`. Out: any number of lines
`{"row": …}`, then `{"done": true}` or `{"error": "what was wrong"}`, with `where`, `hint` and the
exit `code` of a command, if they are known.

    sessions               one row for each session (`gateway/runtime/session_rows.py`)
    site-sessions          the same for all members of the site, with `member`; for a member that
                           does not answer, or stops answering, a row with `silent`
                           (`gateway/site/wiring/session_list.py`)
    session, client        one row, with its subscriptions; none for an unknown client
    end, client            ends the session, and its connection with 0x98; one row {"ended": true}
                           once that is on disk, none for an unknown client
    status                 one row: health, serial ports, bridges, and the figures of `$SYS`
    site                   one row for each member of the site (`gateway/site/links/far_member.py`)
    radios                 one row for each LoRa radio (`gateway/links/lora/status.py`)
    listen                 one row for each frame that the radios hear, and an empty row after
                           LISTEN_S without a frame, until the client closes the connection
    heard, client          one row: whether the board has a session and is connected, seconds since
                           its last packet, whether it is on a radio, and its signal
    command, client, text, wait
                           sends a command to a board; one row {"sent": true} once it is on disk,
                           or with `wait` the board's answer (`gateway/boards/answers.py`),
                           empty rows while the answer is outstanding
    log, client, wait      the lines of a board's log, and how many it has lost
                           (`gateway/boards/log.py`), empty rows while the answer is outstanding;
                           wait: the longest time, in seconds
    bridge-again, bridge, numbers
                           requeue messages that a bridge has set aside; one row {"done": how
                           many}; numbers: separated by commas, empty for all
    bridge-discard, bridge, numbers
                           the same, but delete the messages
    clock, text            one row: the time and its doubt; text `trust`: believe the system clock
    everything             one row: the answer to `/status` (`gateway/web/everything.py`)
    boards                 one row for each board of the device registry: its state
                           (`gateway/boards/expected.py`), its last value and its age
    readings, client, interval
                           one row {"kept_since": ISO 8601 or null, "kept_s": its age, "cut":
                           whether earlier readings were requested}, then one for each reading
                           (`gateway/boards/history.py`); client: empty for all boards; interval:
                           empty for the last reading of each name; no row at all for an unknown
                           board
    expect, client, interval
                           set the interval in which the board is expected to send, such as 5m;
                           `never`; `learn` to estimate it from the readings; one row as for
                           `boards`, and `site`: whether all gateways of a site take it over
    pause, client, interval
                           silence problems of the board for a time; `0` ends the pause; one row, as
                           for `expect`
    reload                 one row {"wrong": why the old configuration stays in force, or null,
                           "mistakes": [the same, one each], "restart": [keys that take effect at
                           the next start only]}
    notify-test            send a test notification; one row {"channels": those that accepted it}
    device, words          the output of `onceway device WORDS`: rows with `to` and `line`, empty
                           rows while there is none, a last row with the exit `code`; words: JSON
    lend, port             one row {"lent": true}: the gateway does not use this serial port until
                           the client closes the connection, however it ends, or LEND_S is over
"""

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Protocol

from gateway.boards import answers
from gateway.boards import log as board_log
from gateway.boards.expected import NEVER
from gateway.boards.intervals import parse
from gateway.boards.listening import PATIENCE_S
from gateway.boards.shared_settings import share
from gateway.commands.control_client import FILE, LEND_S, TIMEOUT_S, Row, place, short
from gateway.errors import OncewayError, Unknown
from gateway.links.lora.status import Overheard
from gateway.mqtt.errors import quote
from gateway.payload.readings import iso
from gateway.runtime.administration import end_session
from gateway.runtime.engine import Engine
from gateway.runtime.session_rows import Places, details, place_of, session_rows
from gateway.runtime.sys_topics import figures
from gateway.service import device_commands
from gateway.system.causes import advised
from gateway.system.logs import about
from gateway.web.everything import board_row, everything, last_rows, port_rows
from gateway.web.health import status
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader

log = logging.getLogger(__name__)

MOST_REQUESTS = 8
MOST_LENT = 64
LONGEST_REQUEST = 1_000_000
"""Largest request, in bytes: enough for a client identifier of 65,535 escaped characters."""
LISTEN_S = 5.0
MOST_OVERHEARD = 1000
"""Largest number of frames that wait for a listening client; later frames are dropped."""

_AT_ONCE = 256
_LONG = ("listen", "log", "command", "device", "readings")
"""Requests that may take longer than TIMEOUT_S: after each row, TIMEOUT_S begins again."""

_OF_BOARDS = ("status", "everything", "boards", "readings", "expect", "pause", "command")
"""Requests before which the device registry is read again: `onceway device` may have changed it."""
PRESENT_S = 1.0
"""Longest wait for the registry, in seconds. If its disk hangs, the last known state is shown."""

_NO_SITE = "`onceway session list` shows this gateway's sessions; a new [site] needs a restart"

Lending = Callable[[str], AbstractContextManager[None]]
"""A function that lends a port. It returns a context manager. Inside its context, other processes
may use the port. Raises OncewayError.
"""


class Site(Places, Protocol):
    """The part of the site that this module uses: the sessions of the other members."""

    def sessions(self) -> AsyncIterator[Row]: ...


class SetAside(Protocol):
    """Messages that bridges have set aside. name: a bridge. numbers: empty for all its messages."""

    async def again(self, name: str, numbers: list[int]) -> int: ...

    async def discard(self, name: str, numbers: list[int]) -> int: ...


class Control:
    """The server of the control socket. Open from `start` to `close`."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        source: Source,
        lending: Lending,
        site: Site | None = None,
        bridges: SetAside | None = None,
    ) -> None:
        self._folder = folder
        self._bridges = bridges
        self._lending = lending
        self._engine = engine
        self._source = source
        self._uplink = UplinkReader(source.folder)
        self._site = site
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None] | None] = set()
        self._lent = 0
        """Number of requests in progress that lend a port."""
        self.reload: Callable[[], Awaitable[tuple[OncewayError | None, list[str]]]] | None = None
        """Reloads the configuration files."""
        self._looks: set[asyncio.Future[None]] = set()
        self.look: Callable[[], Awaitable[None]] | None = None
        """Reads the device registry if it has changed, and updates the state of the boards."""
        self.test_notify: Callable[[], Awaitable[list[str]]] | None = None
        """Sends a test on each notification channel. None without [notify]."""
        self._read: set[str] = set()
        """Boards whose logs are being read now."""

    async def start(self) -> None:
        """Listen. The caller holds the lock of the data directory, so an existing socket file was
        left by a killed gateway.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        file = self._file
        try:
            file.unlink(missing_ok=True)
            with short(file.parent) as path:
                listening.bind(path)
            # The set-group-ID bit of the folder sets the socket's group. No client can connect
            # before start_unix_server listens.
            file.chmod(0o600 if file.parent == self._folder else 0o660)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=LONGEST_REQUEST
            )
        except OSError as error:
            listening.close()
            raise OncewayError(
                f"cannot listen on the control socket ({error.strerror})", str(file)
            ) from error

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in tuple(self._busy):
                if task is not None:
                    task.cancel()
            self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return place(self._folder) / FILE

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._busy.add(task)
        try:
            async with asyncio.timeout(TIMEOUT_S) as limit:
                await self._answer(reader, writer, limit)
        except (TimeoutError, ConnectionError):
            pass
        except Exception:
            log.exception("a request on the control socket failed")
        finally:
            self._busy.discard(task)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: asyncio.Timeout
    ) -> None:
        last: Row = {"done": True}
        if len(self._busy) - self._lent > MOST_REQUESTS:
            last = {"error": "too many requests at a time"}
        else:
            try:
                request = _parse(await reader.readline())
            except (ValueError, RecursionError) as error:
                last = {"error": f"this is not a valid request ({error})"}
            else:
                if request["do"] == "lend":
                    last = await self._lend(request["port"], reader, writer, limit)
                else:
                    last = await self._give_rows(request, writer, limit)
        _write(writer, last)
        await writer.drain()

    async def _give_rows(
        self, request: Mapping[str, str], writer: asyncio.StreamWriter, limit: asyncio.Timeout
    ) -> Row:
        """Write the rows that answer a request. Return the last line of the answer."""
        try:
            if self.look is not None and request["do"] in _OF_BOARDS:
                await _look(self.look, self._looks)
            async for row in self._ROWS[request["do"]](self, request):
                _write(writer, {"row": row})
                await writer.drain()
                if request["do"] in _LONG:
                    limit.reschedule(asyncio.get_running_loop().time() + TIMEOUT_S)
        except OncewayError as error:
            return advised(error).as_json | {"code": error.exit_code}
        return {"done": True}

    async def _lend(
        self,
        port: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: asyncio.Timeout,
    ) -> Row:
        """Lend a port until the client ends the connection. Return the last line of the answer."""
        if self._lent >= MOST_LENT:
            return {"error": "too many commands use serial ports of the gateway now"}
        self._lent += 1
        try:
            with self._lending(port):
                _write(writer, {"row": {"lent": True}})
                await writer.drain()
                limit.reschedule(asyncio.get_running_loop().time() + LEND_S)
                await reader.read(1)  # only the end of the connection is expected
        except OncewayError as error:
            return {"error": error.what}
        finally:
            self._lent -= 1
        return {"done": True}

    async def _session_list(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        async for row in self._sessions():
            yield row

    async def _site_sessions(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        if self._site is None:
            raise OncewayError("this gateway is not a member of a site", hint=_NO_SITE)
        name = self._engine.broker.config.gateway.name
        async for row in self._sessions():
            yield {"member": name} | row
        async for row in self._site.sessions():
            yield row

    async def _session(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        broker = self._engine.broker
        found = broker.sessions.get(request["client"])
        if found is not None:
            yield details(found, broker.now) | place_of(found, self._site)

    async def _end(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        client = request["client"]
        if await end_session(self._engine, client):
            log.warning("%s: the session was ended by request", client, extra=about(client=client))
            yield {"ended": True}

    async def _site_members(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        for member in self._source.site():
            yield member

    async def _radios(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        for radio in self._source.radios():
            yield asdict(radio)

    async def _set_aside(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        if self._bridges is not None:
            do = self._bridges
            change = do.again if request["do"] == "bridge-again" else do.discard
            numbers = [int(number) for number in request["numbers"].split(",") if number]
            yield {"done": await change(request["bridge"], numbers)}

    async def _everything(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        if request["do"] == "clock":
            yield self._engine.clock.times(trust=request["text"] == "trust")
            return
        uplink = await self._uplink.state() if self._source.broker.config.uplink else None
        yield everything(self._source, uplink)

    async def _boards(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        for name in self._source.expected.states if self._source.expected else ():
            yield board_row(self._source, name)

    async def _readings(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        source, device = self._source, request["client"]
        assert source.history is not None  # noqa: S101 - each gateway has it
        states = source.expected.states if source.expected is not None else {}
        if device and device not in states:
            return
        history = source.history
        kept = history.begins(device)
        age = None if kept is None else history.age(kept)
        rows, seconds = iter(last_rows(source, device)), parse(request["interval"])
        if seconds is not None:
            rows = history.since(device, seconds)
        cut = seconds is not None and (age is None or age < seconds)
        yield {"kept_since": iso(history.utc(kept)), "kept_s": age and round(age, 1), "cut": cut}
        for index, row in enumerate(rows):
            yield row
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # yield to clients

    async def _expect(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        """Set the interval at which a board is expected to send, or pause a board."""
        name, text, expected = request["client"], request["interval"], self._source.expected
        if expected is None or not (name in expected.states or name in expected.elsewhere):
            raise Unknown(
                "the gateway knows no board with this name",
                name,
                "`onceway device list` shows the boards",
            )
        pauses = request["do"] == "pause"
        seconds = {"never": NEVER, "learn": None, "0": None}.get(text, parse(text))
        in_site = self._engine.broker.config.site is not None
        if in_site:
            share(self._engine, name, "paused" if pauses else "interval", seconds)
        if pauses:
            expected.pause(name, seconds or 0.0)
        else:
            expected.want(name, seconds)
        yield board_row(self._source, name) | {"site": in_site}

    async def _test_notify(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        if self.test_notify is None:
            raise OncewayError(
                "no notifications are configured", hint="Add [notify], then restart the gateway"
            )
        yield {"channels": await self.test_notify()}

    async def _reload(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        assert self.reload is not None  # noqa: S101 - set before the socket is there
        wrong, keys = await self.reload()
        yield {
            "wrong": None if wrong is None else str(wrong),
            "mistakes": [] if wrong is None else wrong.lines,
            "restart": keys,
        }

    async def _device(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        words = device_commands.parse(request["words"])
        log.warning("the control socket runs: onceway device %s", " ".join(map(quote, words)))
        async for row in device_commands.run(self._folder, words):
            yield row

    async def _status(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        yield status(self._source) | {
            "ports": port_rows(self._source),
            "bridges": [asdict(bridge) for bridge in self._source.bridges()],
            "spool": self._spool(),
            "figures": figures(self._engine.broker),
        }

    def _spool(self) -> Row:
        """Return number and size of the messages in the spool. Key `used` of the row: whether new
        publications are kept for an uplink.
        """
        broker = self._engine.broker
        return {
            "used": bool(broker.config.spooled),
            "messages": broker.spool.count,
            "bytes": broker.spool.size,
        }

    async def _sessions(self) -> AsyncIterator[Row]:
        for index, row in enumerate(session_rows(self._engine.broker, self._site)):
            yield row
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # yield to clients

    async def _listen(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        heard: asyncio.Queue[Overheard] = asyncio.Queue(MOST_OVERHEARD)

        def take(overheard: Overheard) -> None:
            if not heard.full():
                heard.put_nowait(overheard)

        self._source.overhearers.add(take)
        try:
            while True:
                try:
                    yield asdict(await asyncio.wait_for(heard.get(), LISTEN_S))
                except TimeoutError:
                    yield {}  # the client may be gone
        finally:
            self._source.overhearers.remove(take)

    async def _heard(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        client = request["client"]
        broker, radios = self._engine.broker, self._source.radios()
        session = broker.sessions.get(client)
        connection = session.connection if session else None
        signals = {board.name: board for radio in radios for board in radio.boards}
        signal = signals.get(client)
        yield {
            "known": session is not None,
            "connected": connection is not None,
            "age": None if connection is None else broker.now - connection.seen,
            "radio": client in self._source.by_radio,
            "rssi": signal and signal.rssi,
            "snr": signal and signal.snr,
        }

    def _check_known(self, device: str) -> None:
        """Raise Unknown for a board that is not registered and has no session here."""
        expected = self._source.expected
        names = () if expected is None else (*expected.states, *expected.elsewhere)
        if device not in names and device not in self._engine.broker.sessions:
            raise Unknown("there is no such board here", device, "See: onceway device list")

    async def _log(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        """Read a board's log. Only one command at a time may: two would each miss some lines."""
        device, wait_s = request["client"], int(request["wait"] or PATIENCE_S)
        if device in self._read:
            raise OncewayError("another command reads the log of this board now", device)
        self._read.add(device)
        try:
            async for row in board_log.read(self._engine, device, wait_s):
                yield row
        finally:
            self._read.discard(device)

    async def _command(self, request: Mapping[str, str]) -> AsyncIterator[Row]:
        device, text, wait = request["client"], request["text"], request["wait"]
        self._check_known(device)
        log.warning("%s: gets the command %r by request", device, text, extra=about(client=device))
        async for row in answers.ask(self._engine, device, text, int(wait) if wait else None):
            yield row

    _ROWS: ClassVar[dict[str, Callable[["Control", Mapping[str, str]], AsyncIterator[Row]]]] = {
        "sessions": _session_list,
        "site-sessions": _site_sessions,
        "session": _session,
        "end": _end,
        "status": _status,
        "clock": _everything,
        "everything": _everything,
        "boards": _boards,
        "readings": _readings,
        "expect": _expect,
        "pause": _expect,
        "device": _device,
        "notify-test": _test_notify,
        "reload": _reload,
        "radios": _radios,
        "listen": _listen,
        "heard": _heard,
        "log": _log,
        "command": _command,
        "site": _site_members,
        "bridge-again": _set_aside,
        "bridge-discard": _set_aside,
    }
    """The handler of each request that is answered by rows."""

    REQUESTS = (*_ROWS, "lend")


async def _look(look: Callable[[], Awaitable[None]], running: set[asyncio.Future[None]]) -> None:
    """Check the boards, but wait PRESENT_S at most. A longer check continues in `running`."""
    task = asyncio.ensure_future(look())
    running.add(task)
    task.add_done_callback(running.discard)
    await asyncio.wait([task], timeout=PRESENT_S)
    if task.done() and (error := task.exception()) is not None:
        log.error("the state of the boards cannot be determined (%s)", error)


def _parse(line: bytes) -> dict[str, str]:
    """Return the keys of a request. Raises ValueError if `line` is not a valid request."""
    request = json.loads(line)
    if not isinstance(request, dict) or request.get("do") not in Control.REQUESTS:
        raise ValueError(f"`do` must be one of {', '.join(Control.REQUESTS)}")
    keys = ("do", "client", "port", "wait", "text", "bridge", "numbers", "interval", "words")
    found = {key: request.get(key, "") for key in keys}
    for key, value in found.items():
        if not isinstance(value, str) or (key == "port" and "\0" in value):
            raise ValueError(f"`{key}` must be a string")
    if found["do"] == "device":
        device_commands.parse(found["words"])
    if not re.fullmatch("|[1-9][0-9]{0,4}", found["wait"]):
        raise ValueError("`wait` must be a number of seconds from 1 to 99999")
    if found["interval"] not in ("", "never", "learn", "0") and parse(found["interval"]) is None:
        raise ValueError("`interval` must be a time, such as 5m")
    if not re.fullmatch("|[0-9]{1,18}(,[0-9]{1,18})*", found["numbers"]):
        raise ValueError("`numbers` must be numbers, separated by commas")
    return found


def _write(writer: asyncio.StreamWriter, line: Row) -> None:
    writer.write(json.dumps(line).encode() + b"\n")
