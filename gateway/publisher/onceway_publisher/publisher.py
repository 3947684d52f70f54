"""`Publisher`: messages of a program, each exactly once in the table.

In: messages. Out: a journal on this machine's disk, from which each message is sent to a gateway by
MQTT 5 at QoS 2, until the gateway has it. `flow.py` has the rules for sending, `journal.py` those
for storing.

The first connection of each process begins a new session. An earlier process, or another machine
with a copy of the journal, may have left packet identifiers in the existing session. Later
connections resume the session, so a subscriber gets each message once while the process lives.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from onceway_publisher import packets
from onceway_publisher.address import address
from onceway_publisher.alive import ANSWER_S, Alive
from onceway_publisher.errors import (
    JournalError,
    JournalFull,
    NoIdentity,
    PublisherError,
    Refused,
    StillWaiting,
    Unreadable,
)
from onceway_publisher.flow import Flow, Message, Refusal
from onceway_publisher.journal import Journal
from onceway_publisher.packets import Answer, Connack, Disconnect, PacketError, Reader
from onceway_publisher.payload import Value, checked_topic, payload

log = logging.getLogger("onceway_publisher")

READS_REASON_CODES = ("onceway-reads-reason-codes", "1")
"""User property of CONNECT: it asks the gateway to send reason codes instead of ending the
connection after a refusal.
"""
IDENTITY = "onceway-identity"
"""User property of CONNACK: "counts" if the gateway accepts this client's `incarnation` and
`seq`.
"""

SESSION_S = 86_400
"""Time, in seconds, for which the gateway keeps the session after a connection is lost."""
KEEP_ALIVE_S = 30
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
"""Longest wait before the next attempt to connect, in seconds. After a connection that has made
progress, or has lasted longer than this, the next wait is short again.
"""
FORGET_AFTER_S = 0.2
"""Seconds after which a message that the gateway has is removed from the journal, unless another
commit does that earlier.
"""
OVERHEAD = 256
"""Number of bytes that each message counts against `max_bytes`, besides its topic and payload."""

_BAD = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Reason codes of CONNACK that only a person can remedy: wrong version, identifier, user, rights or
authentication method, and a banned client. After any other reason code, for example from a gateway
that is busy, the client tries again.
"""


@dataclass(frozen=True)
class Publication:
    """The identity of a message, by which the table recognises the message."""

    device: str
    incarnation: int
    sequence: int


class Publisher:
    """A publisher, as an asynchronous context manager. `SyncPublisher` is the same for threads.

    url: mqtts://HOST or mqtt://HOST, with user, password and port if needed. device: the client
    identifier, and the device in the table. journal: path of a file that only this program uses.
    max_messages, max_bytes: bounds of the journal. wait_s: how long `publish` waits for room in the
    journal. start_s: how long the start waits for the gateway's first answer. stop_s: how long the
    end waits until the gateway has all messages; the remaining messages stay in the journal for the
    next start. tls: an SSL context, or the path of a CA file. incarnation: that of a new journal;
    None for a random number.

    Entering the context raises NoIdentity if the gateway ignores the identity of this client's
    messages, Refused if the gateway does not let the client in, JournalError, or Unreadable. While
    the gateway cannot be reached, messages wait in the journal.
    """

    def __init__(
        self,
        url: str,
        *,
        device: str,
        journal: str | Path,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | str | None = None,
        max_messages: int = 10_000,
        max_bytes: int = 16 << 20,
        wait_s: float = 10.0,
        start_s: float = 5.0,
        stop_s: float = 5.0,
        incarnation: int | None = None,
    ) -> None:
        self._address = address(url, user, password, tls)
        size = len(device.encode(errors="replace"))
        if not 0 < size <= 256 or set(device) & set("/+#\0") or not _is_text(device):
            raise Unreadable(
                f"{device!r} is not a name of a device: 1 to 256 bytes, without / + and #"
            )
        self.device = device
        self.problem: str | None = None
        """Present reason why messages wait, or None."""
        self.on_taken: Callable[[Publication], object] | None = None
        """Callback in the event loop for each publication that the gateway has accepted."""
        self.on_sent: Callable[[Publication], object] | None = None
        """Callback in the event loop for each publication that is about to be sent in a new
        PUBLISH; not for a repetition with DUP.
        """
        self._path, self._incarnation = Path(journal), incarnation
        self._bounds = max_messages, max_bytes
        self._wait_s, self._start_s, self._stop_s = wait_s, start_s, stop_s
        self._flow = Flow(on_sent=lambda message: self._call(self.on_sent, message))
        self._count = self._bytes = 0
        self._new: list[tuple[tuple[str, bytes, bool], asyncio.Future[Message]]] = []
        self._accepted_keys: list[tuple[int, int]] = []
        self._waiting: dict[tuple[int, int], asyncio.Future[None]] = {}
        """Futures of callers that wait until the gateway has a message, by the message's key."""
        self._open = False
        self._refused: Refused | None = None
        self._logged: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._disk = ThreadPoolExecutor(1, "onceway-publisher")
        try:
            self._journal = await loop.run_in_executor(
                self._disk, Journal, self._path, self.device, self._incarnation
            )
        except BaseException:
            self._disk.shutdown(wait=False)
            raise
        if self._journal.copied:
            log.warning("%s was copied or restored: it gets a new incarnation", self._path)
        self._flow.add(self._journal.waiting)
        for message in self._journal.waiting:
            self._hold(message.topic, message.payload)
        self._wake, self._to_disk, self._less = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answered = loop.create_future()
        self._open = True
        self._writing = asyncio.create_task(self._write())
        self._serving = asyncio.create_task(self._serve())
        try:
            await asyncio.wait([self._answered], timeout=self._start_s)
            if self._refused is not None:
                raise self._refused
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with suppress(StillWaiting):
                await self.flush(self._stop_s)
        finally:
            await self._end()

    @property
    def last(self) -> int:
        """Last sequence that the journal has used in its incarnation."""
        return self._journal.sequence

    @property
    def waiting(self) -> int:
        """Number of messages that the gateway does not have yet."""
        return self._count

    async def publish(
        self,
        topic: str,
        value: Value,
        *,
        unit: str | None = None,
        name: str | None = None,
        time: float | None = None,
        retain: bool = False,
        wait: bool = False,
    ) -> Publication:
        """Publish a value; return once it is in the journal on disk. From there it reaches the
        table, even if this program or the gateway stops in between.

        value: a number, a text or a truth value is sent as SenML, with `unit`, `name` (by default
        the topic's last level) and `time` (seconds since 1970, by default now). Bytes are sent as
        they are. wait: whether to return only once the gateway has the message. If that takes
        longer than `wait_s`, StillWaiting is raised, and the message stays in the journal. After a
        cancellation, the message may or may not be sent.

        Raises JournalFull if there is no room in the journal within `wait_s`; the message is then
        not accepted. Raises Refused while the gateway refuses this client, JournalError, or
        Unreadable.
        """
        content = payload(checked_topic(topic), value, unit, name, time)
        if not isinstance(retain, bool):
            raise Unreadable(f"retain is True or False, not {retain!r}")
        if not self._open:
            raise PublisherError("this publisher is not open: use it inside `async with`")
        if self._refused is not None:
            raise self._refused
        await self._wait_for_room(topic, content)
        self._hold(topic, content)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._new.append(((topic, content, retain), future))
        self._to_disk.set()
        message = await future
        publication = Publication(self.device, *message.key)
        if wait:
            await self._wait_for(message)
        return publication

    async def flush(self, within_s: float | None = None) -> None:
        """Wait until the gateway has all messages of the journal. Raises StillWaiting after
        `within_s` seconds; None: wait without end.
        """
        try:
            async with asyncio.timeout(within_s):
                while self._count:
                    self._less.clear()
                    await self._less.wait()
        except TimeoutError:
            raise StillWaiting(
                f"messages that wait in {self._path}: {self._count}{self._why()}"
            ) from None

    def _why(self) -> str:
        """Return the cause of a wait, with a colon before it; "" if no cause is known."""
        silent = "" if self._answered.done() else f"{self._address} has not answered yet"
        return f": {self.problem or silent}" if self.problem or silent else ""

    # Bounds

    def _fits(self, topic: str, content: bytes) -> bool:
        messages, size = self._bounds
        new = len(topic.encode()) + len(content) + OVERHEAD
        return self._count < messages and (not self._count or self._bytes + new <= size)

    def _hold(self, topic: str, content: bytes, sign: int = 1) -> None:
        self._count += sign
        self._bytes += sign * (len(topic.encode()) + len(content) + OVERHEAD)

    def _release(self, topic: str, content: bytes) -> None:
        self._hold(topic, content, -1)
        self._less.set()

    async def _wait_for_room(self, topic: str, content: bytes) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._fits(topic, content):
                    self._less.clear()
                    await self._less.wait()
        except TimeoutError:
            raise JournalFull(
                f"{self._path} is full (max_messages, max_bytes; messages: {self._count}), and had"
                f" no room within {self._wait_s:g} s{self._why()}"
            ) from None

    # The journal

    async def _write(self) -> None:
        """Write new messages to the journal, and delete messages that the gateway has. One commit
        has all messages that arrived while the previous commit ran.
        """
        while self._open:
            if not self._new and self._accepted_keys:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._to_disk.wait(), FORGET_AFTER_S)
            else:
                await self._to_disk.wait()
            self._to_disk.clear()
            await self._commit()

    async def _commit(self) -> None:
        new, accepted = self._new, self._accepted_keys
        self._new, self._accepted_keys = [], []
        loop = asyncio.get_running_loop()
        try:
            written = await loop.run_in_executor(
                self._disk, self._journal.write, [one for one, _ in new], accepted
            )
        except Exception as reason:  # a caller waits for each message
            error = reason if isinstance(reason, JournalError) else JournalError(repr(reason))
            self._accepted_keys = accepted + self._accepted_keys
            for (topic, content, _), future in new:
                self._release(topic, content)
                if not future.done():
                    future.set_exception(error)
            return
        self._flow.add(written)
        self._wake.set()
        for message, (_, future) in zip(written, new, strict=True):
            if not future.done():
                future.set_result(message)

    async def _wait_for(self, message: Message) -> None:
        """Wait until the gateway has the message. Raises StillWaiting after `wait_s` seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[message.key] = waiter
        try:
            await asyncio.wait_for(waiter, self._wait_s)
        except TimeoutError:
            raise StillWaiting(
                f"the gateway has not acknowledged the message for {self._wait_s:g} s; it waits in"
                f" {self._path}{self._why()}"
            ) from None
        finally:
            del self._waiting[message.key]

    def _note_taken(self, message: Message) -> None:
        self._accepted_keys.append(message.key)
        self._to_disk.set()
        self._release(message.topic, message.payload)
        if (waiter := self._waiting.get(message.key)) is not None and not waiter.done():
            waiter.set_result(None)
        self._call(self.on_taken, message)

    def _call(self, callback: Callable[[Publication], object] | None, message: Message) -> None:
        if callback is not None:
            try:
                callback(Publication(self.device, *message.key))
            except Exception:
                log.exception("a callback has failed")

    # The connection

    async def _serve(self) -> None:
        """Connect to the gateway again whenever the connection ends. The pauses grow while no
        connection succeeds.
        """
        loop, wait, self._clean = asyncio.get_running_loop(), FIRST_WAIT_S, True
        while True:
            self._progress, self._met, start = False, False, loop.time()
            try:
                await self._connection()
            except Refused as error:
                self._refused = error
                self._trouble(str(error))
            except (OSError, PacketError, PublisherError, asyncio.IncompleteReadError) as error:
                self._trouble(f"{self._address}: {self._address.cause(error, self._met)}")
            except Exception as error:  # whatever it is, the messages are in the journal
                log.exception("the connection has failed")
                self._trouble(f"{self._address}: {error!r}")
            finally:
                self._flow.disconnected()
            if not self._answered.done() and self._refused is not None:
                self._answered.set_result(None)
            good = self._progress or loop.time() - start > LONGEST_WAIT_S
            wait = FIRST_WAIT_S if good else min(2 * wait, LONGEST_WAIT_S)
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311

    async def _connection(self) -> None:
        at = self._address
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(at.host, at.port, ssl=at.tls)
        try:
            packets_of = Reader()
            hello = packets.connect(
                self.device, self._clean, KEEP_ALIVE_S, SESSION_S, (READS_REASON_CODES,), at.login
            )
            async with asyncio.timeout(ANSWER_S):
                writer.write(hello)
                await writer.drain()
                early: list[packets.Packet] = []
                while not early:
                    early += packets_of.feed(await _read(reader))
            connack, *rest = early
            self._accepted(connack)
            assert isinstance(connack, Connack)  # noqa: S101
            writer.write(
                self._flow.connected(
                    connack.session_present, connack.receive_maximum, connack.packet_limit
                )
            )
            self._clean = False
            for packet in rest:
                self._take(packet, writer)
            await self._exchange(reader, packets_of, writer, connack.keep_alive)
        except asyncio.CancelledError:
            writer.write(packets.disconnect(0))
            raise
        finally:
            writer.close()
            with suppress(OSError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    def _accepted(self, connack: packets.Packet) -> None:
        """Check the gateway's answer to CONNECT. Raises Refused or PacketError."""
        if not isinstance(connack, Connack):
            raise PacketError(f"the answer to CONNECT was {connack}")
        detail = f" ({connack.text})" if connack.text else ""
        if connack.reason in _BAD:
            raise Refused(
                f"{self._address} does not let {self.device!r} in: reason code"
                f" 0x{connack.reason:02x}{detail}. Check user, password and rights"
                " (`onceway user add`, [[acl]])",
                connack.reason,
            )
        if connack.reason:
            raise PacketError(f"reason code 0x{connack.reason:02x}{detail}")
        counts = connack.user.get(IDENTITY)
        if counts is None:
            raise NoIdentity(
                f"{self._address} is not an Onceway gateway, or has version 0.2.0 or older: its"
                f" CONNACK does not contain {IDENTITY}. Behind such a gateway, messages that are"
                " sent again would be in the table twice"
            )
        if counts != "counts" or connack.maximum_qos < 2:
            user = self._address.user or ""
            raise NoIdentity(
                f"{self._address} ignores the identity of messages of {self.device!r}, so messages"
                " that are sent again would be in the table twice. Add this line to an [[acl]]"
                f' section with users = ["{user}"] in gateway.toml, and reload the gateway:'
                f' identity = ["{self.device}"]'
            )
        if self.problem is not None:
            log.info("connected to %s; waiting messages: %d", self._address, self._count)
        self._refused = self.problem = None
        self._met = True
        self._logged.clear()
        if not self._answered.done():
            self._answered.set_result(None)

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        packets_of: Reader,
        writer: asyncio.StreamWriter,
        keep_alive: int | None,
    ) -> None:
        """Send and receive until the connection ends. Raises the error that ended it."""
        loop = asyncio.get_running_loop()
        alive = Alive(KEEP_ALIVE_S if keep_alive is None else keep_alive, loop.time())
        read = asyncio.ensure_future(_read(reader))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            while True:
                out, refusals = self._flow.send(loop.time())
                for refusal in refusals:
                    self._note_refusal(refusal)
                out += alive.ping(loop.time(), bool(out))
                if out:
                    writer.write(out)
                async with asyncio.timeout(ANSWER_S):
                    await writer.drain()
                due = self._flow.due(loop.time())
                wait = alive.wait(loop.time(), self._flow.in_flight > 0)
                await asyncio.wait(
                    {read, wake},
                    timeout=wait if due is None else min(wait, due),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if wake.done():
                    self._wake.clear()
                    wake = asyncio.ensure_future(self._wake.wait())
                if read.done():
                    for packet in packets_of.feed(read.result()):
                        alive.heard(loop.time(), isinstance(packet, Answer))
                        self._take(packet, writer)
                    read = asyncio.ensure_future(_read(reader))
                if (silence := alive.silence(loop.time(), self._flow.in_flight > 0)) is not None:
                    raise PacketError(silence)
        finally:
            read.cancel()
            wake.cancel()

    def _take(self, packet: packets.Packet, writer: asyncio.StreamWriter) -> None:
        match packet:
            case Answer():
                outcome = self._flow.take(packet, asyncio.get_running_loop().time())
                writer.write(outcome.out)
                if outcome.accepted is not None:
                    self._progress = True
                    self.problem = self.problem if self._flow.refused else None
                    self._note_taken(outcome.accepted)
                if outcome.refusal is not None:
                    self._note_refusal(outcome.refusal)
            case Disconnect(reason=reason, text=text):
                if reason == 0x8E:
                    self._clean = True  # the session is another connection's now
                    text += ". Another program uses this device's name"
                raise PacketError(f"the gateway ended the connection: 0x{reason:02x} {text}")
            case Connack():
                raise PacketError("a second CONNACK")

    def _note_refusal(self, refusal: Refusal) -> None:
        detail = f" ({refusal.text})" if refusal.text else ""
        self._trouble(
            f"{self._address} did not accept a message for {refusal.message.topic!r}:"
            f" {refusal.kind.name} 0x{refusal.reason:02x}{detail}; the message is sent again"
        )

    def _trouble(self, text: str) -> None:
        """Set `problem`. Each new problem is logged once until messages are accepted again."""
        self.problem = text
        if text not in self._logged:
            self._logged[text] = None
            if len(self._logged) > 100:
                del self._logged[next(iter(self._logged))]
            log.warning("%s", text)

    async def _end(self) -> None:
        """Stop, and record in the journal which messages the gateway has."""
        self._open = False
        self._serving.cancel()
        await asyncio.wait([self._serving])
        self._to_disk.set()
        await self._writing
        if self._new or self._accepted_keys:
            await self._commit()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._disk, self._journal.close)
        self._disk.shutdown(wait=False)


def _is_text(text: str) -> bool:
    """Whether a text can be encoded: it contains no half of a surrogate pair."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


async def _read(reader: asyncio.StreamReader) -> bytes:
    if not (data := await reader.read(65_536)):
        raise ConnectionResetError("the gateway has closed the connection")
    return data
