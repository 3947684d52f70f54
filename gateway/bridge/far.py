"""The connection to the other broker: TCP or TLS, CONNECT, and packets.

In: the address, the client identifier, packets to send. Out: the limits in the other broker's
CONNACK, received packets, and the end of the connection with its reason, in words for the log. No
packet is larger than the other broker accepts [MQTT-3.2.2-15]. A peer that is silent for longer
than the keep alive counts as dead.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from gateway.bridge.incoming import IncomingStream
from gateway.bridge.reasons import blames_message, own_words
from gateway.bridge.translate import Unfit
from gateway.config import READS_REASON_CODES, BridgeSection, split_broker
from gateway.errors import OncewayError
from gateway.links.tls import client_context
from gateway.mqtt.encode import encode, encode_within
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.wire import MAX_PACKET
from gateway.system.dial import connected

CONNECT_S = 20.0
"""Timeout for TCP, TLS and CONNACK together, in seconds."""
TCP_S = 15.0
"""Timeout for name lookup and TCP, in seconds."""
KEEP_ALIVE_S = 30
RECEIVE_MAXIMUM = 64
KEPT_S = 30 * 86_400
"""Session Expiry Interval at the other broker, in seconds: the longest time for which the other
broker keeps messages for the disconnected bridge.
"""
SMALLEST = 6
"""Bytes of the smallest PUBLISH. A broker with a lower Maximum Packet Size accepts no message, and
not every acknowledgement.
"""
_CLOSED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLError)
"""Errors with which the peer ends a connection. Other errors come from the network."""
_LOGIN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)


class FarConnection(asyncio.Protocol):
    """The connection to the other broker.

    on_packets: called with the packets of each read, once `listen` was called. lost: called once if
    the connection ends without a call of `close`. Its arguments are the reason, and whether the
    last packets that were sent may have made the other broker end the connection. drained: called
    when the transport accepts bytes again. packet_bytes: bytes of the largest packet accepted.
    """

    high_water = 256 * 1024

    def __init__(
        self,
        on_packets: Callable[[list[Packet]], None],
        lost: Callable[[str, bool], None],
        drained: Callable[[], None],
        packet_bytes: int,
    ) -> None:
        self._on_packets = on_packets
        self._lost = lost
        self._drained = drained
        self._packet_bytes = packet_bytes
        self._stream = IncomingStream(packet_bytes)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._connack: asyncio.Future[Connack] = self._loop.create_future()
        self.most = MAX_PACKET
        """Maximum Packet Size of the other broker, in bytes."""
        self.qos = 2
        """Maximum QoS of the other broker."""
        self._wildcards = True
        """Whether the other broker offers subscriptions with wildcards."""
        self.address = ""
        """IP address of the other broker, empty before TCP is connected."""
        self.gave_reason = False
        """Whether the other broker has ended the connection with a reason."""
        self._asked: asyncio.Future[Packet] | None = None
        """Future of the answer that `ask` waits for."""
        self._early: list[Packet] | None = []
        """Packets that arrived before `listen` was called; None afterwards."""
        self._pings: deque[asyncio.Future[None] | None] = deque()
        """PINGREQs without an answer, each with the future that waits for it, the oldest first."""
        self._closed = False
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._keep_alive = float(KEEP_ALIVE_S)

    # -- begin and end

    async def open(
        self,
        section: BridgeSection,
        client: str,
        kept_s: int = KEPT_S,
        *,
        address: str | None = None,
        last: Sequence[str] = (),
    ) -> Connack:
        """Connect, send CONNECT and return the CONNACK. kept_s: Session Expiry Interval in seconds;
        0 also sets Clean Start. address: the only address to try, None for all addresses of the
        host. last: addresses to try after all other addresses. Raises OncewayError with the reason
        of a failure.
        """
        host, port, encrypted = split_broker(section.server)
        password = _password(section)
        context = (
            client_context(section.ca, section.certificate, section.key) if encrypted else None
        )
        try:
            async with asyncio.timeout(CONNECT_S):
                line = await connected(address or host, port, TCP_S, last)
                self.address = line.getpeername()[0]
                name = host if encrypted else None
                await self._loop.create_connection(
                    lambda: self, sock=line, ssl=context, server_hostname=name
                )
                self.send(self._hello(section, client, password, kept_s))
                answer = await self._connack
        except TimeoutError as error:
            self.close()
            why = f" ({error})" if str(error) else ""
            raise OncewayError(f"it does not answer{why}", section.server) from None
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or str(error)
            raise OncewayError(
                f"TLS fails: {str(why).lower().replace('_', ' ')}", section.server
            ) from error
        except (OSError, MqttError) as error:
            self.close()
            why = str(getattr(error, "strerror", None) or error)
            raise OncewayError(f"cannot be reached ({why})", section.server) from error
        if answer.reason:
            self.close()
            raise _refused(section, answer)
        if self.most < SMALLEST:
            self.close()
            raise OncewayError(
                f"accepts packets of {self.most} bytes at most, too few for any message",
                section.server,
                "Raise its maximum packet size",
            )
        wanted = (answer.properties or {}).get(PropertyId.SERVER_KEEP_ALIVE, KEEP_ALIVE_S)
        self._keep_alive = float(min(wanted or KEEP_ALIVE_S, KEEP_ALIVE_S))
        self._timer = self._loop.call_later(self._keep_alive / 2, self._look)
        return answer

    def _hello(
        self, section: BridgeSection, client: str, password: bytes | None, kept_s: int
    ) -> Connect:
        return Connect(
            client,
            clean_start=not kept_s,
            keep_alive=KEEP_ALIVE_S,
            username=section.user,
            password=password,
            properties={
                PropertyId.SESSION_EXPIRY_INTERVAL: kept_s,
                PropertyId.RECEIVE_MAXIMUM: RECEIVE_MAXIMUM,
                PropertyId.MAXIMUM_PACKET_SIZE: self._packet_bytes,
                PropertyId.USER_PROPERTY: [READS_REASON_CODES],
            },
        )

    def listen(self) -> None:
        """Hand packets to `on_packets` from now on."""
        early, self._early = self._early, None
        if early:
            self._on_packets(early)

    def close(self, forget: bool = False) -> None:
        """End the connection from this side; `lost` is not called. forget: whether to end the
        session at the other broker.
        """
        if self._transport is not None and not self._closed:
            bye = Disconnect()
            if forget:
                bye.properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 0}
            try:
                self.send(bye)
            except Unfit:  # the session at the other broker expires later
                with suppress(Unfit):
                    self.send(Disconnect())
            self._transport.close()
        self._end()

    def _end(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._forget_pings()

    def _drop(self, reason: str, blamed: bool = False) -> None:
        """End the connection and report the reason, once. blamed: whether the packets that were
        sent last may be the cause.
        """
        if self._closed:
            return
        self._end()
        if self._transport is not None:
            self._transport.abort()
        if not self._connack.done():
            self._connack.set_exception(OncewayError(reason))
            return
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(OncewayError(reason))
        self._lost(reason, blamed)

    def _forget_pings(self) -> None:
        for waiting in self._pings:
            if waiting is not None:
                waiting.cancel()
        self._pings.clear()

    def offers(self, topic_filter: str) -> bool:
        """Whether the other broker allows this filter: some allow no wildcards in filters."""
        return self._wildcards or not any(sign in topic_filter for sign in "+#")

    # -- packets

    def encoded(self, packet: Packet) -> bytes:
        """Return the bytes of a packet. Raises Unfit if the other broker can never accept it."""
        try:
            data = encode_within(packet, Version.V5, self.most)
            if data is not None:
                return data
            size = len(encode(packet, Version.V5))
        except Exception as error:
            raise Unfit(
                "the message cannot be written",
                f"the message cannot be written as a packet ({error})",
            ) from error
        text = f"its packet has {size:,} bytes, but the other broker accepts {self.most:,} at most"
        raise Unfit("the message is too large", text)

    def write(self, data: bytes) -> None:
        """Send packets encoded by `encoded`."""
        if self._transport is not None and not self._closed:
            self._transport.write(data)

    def send(self, packet: Packet) -> None:
        """Send one packet. Raises Unfit like `encoded`."""
        self.write(self.encoded(packet))

    async def ask(
        self, packet: Subscribe | Unsubscribe | Pingreq | Publish, within: float
    ) -> Packet | None:
        """Send a request and return its answer, or None if there is none within `within` seconds.
        Raises OncewayError if the connection ends. Make one request at a time. After `listen`, make
        requests only on a connection that has no other traffic.
        """
        if self._closed:
            raise OncewayError("the other broker closed the connection")
        self._asked = self._loop.create_future()
        self.send(packet)
        try:
            async with asyncio.timeout(within):
                return await self._asked
        except TimeoutError:
            return None
        finally:
            self._asked = None

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._closed:
            self._transport.resume_reading()

    def _look(self) -> None:
        """Send PINGREQ, or end the connection if the other broker was silent for too long."""
        silent = self._loop.time() - self._heard
        if silent > 1.5 * self._keep_alive:
            self._drop(f"the other broker was silent for {silent:.0f} s")
            return
        self._pings.append(None)
        self.send(Pingreq())
        self._timer = self._loop.call_later(self._keep_alive / 2, self._look)

    async def settled(self) -> None:
        """Wait until the other broker has handled everything that was sent. Call this only after
        `listen`. Raises CancelledError if the connection has ended.
        """
        if self._closed:
            raise asyncio.CancelledError
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._pings.append(waiting)
        self.send(Pingreq())
        await waiting

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self.high_water)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._closed:
            return
        packets: list[Packet] = []
        self._stream.feed(data)
        try:
            packets += self._stream
        except MqttError as error:
            self._hand_over(packets)
            self._drop(f"the other broker sends bytes that are not MQTT: {error}", blamed=True)
            return
        self._hand_over(packets)

    def _hand_over(self, packets: list[Packet]) -> None:
        """Handle packets for the connection itself, such as CONNACK and DISCONNECT. Hand all other
        packets to `on_packets`.
        """
        if packets and not self._connack.done():
            answer = packets.pop(0)
            if not isinstance(answer, Connack):
                self._drop(f"the other broker answers CONNECT with {type(answer).__name__}")
                return
            properties = answer.properties or {}
            self.most = properties.get(PropertyId.MAXIMUM_PACKET_SIZE, MAX_PACKET)
            self.qos = properties.get(PropertyId.MAXIMUM_QOS, 2)
            self._wildcards = bool(properties.get(PropertyId.WILDCARD_SUBSCRIPTION_AVAILABLE, 1))
            self._connack.set_result(answer)
        if any(isinstance(packet, Connack | Auth) for packet in packets):
            self.send(Disconnect(ReasonCode.PROTOCOL_ERROR))  # [MQTT-3.2.0-2]
            self._drop("the other broker sends a second CONNACK, or AUTH without a request")
            return
        bye = next((packet for packet in packets if isinstance(packet, Disconnect)), None)
        if bye is not None:
            del packets[packets.index(bye) :]
        packets = [packet for packet in packets if not self._handles(packet)]
        if self._early is not None:
            self._early += packets
        elif packets:
            self._on_packets(packets)
        if bye is not None:
            self.gave_reason = bool(bye.reason)
            blamed = not bye.reason or blames_message(bye.reason)
            self._drop(
                f"the other broker ended the connection ({bye.reason.name}){own_words(bye)}", blamed
            )

    def _handles(self, packet: Packet) -> bool:
        """Handle an answer to PINGREQ or to `ask`. Return False for any other packet."""
        asked = self._asked
        if asked is not None and isinstance(packet, Pingresp | Suback | Unsuback | Puback):
            if not asked.done():
                asked.set_result(packet)
            return True
        if not isinstance(packet, Pingresp):
            return False
        waiting = self._pings.popleft() if self._pings else None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        return True

    def resume_writing(self) -> None:
        if not self._closed:
            self._drained()

    def connection_lost(self, error: Exception | None) -> None:
        closed = error is None or isinstance(error, _CLOSED)
        self._drop(str(error) if error else "the other broker closed the connection", closed)


def check(section: BridgeSection) -> None:
    """Raise OncewayError if a file that the section names cannot be used."""
    _password(section)
    if split_broker(section.server)[2]:
        client_context(section.ca, section.certificate, section.key)


def _password(section: BridgeSection) -> bytes | None:
    if section.password_file is None:
        return None
    try:
        return section.password_file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise OncewayError(
            f"the password cannot be read ({error.strerror})",
            str(section.password_file),
            "The service's user must be able to read the file",
        ) from error


def _refused(section: BridgeSection, answer: Connack) -> OncewayError:
    reason = answer.reason.name.lower().replace("_", " ")
    hint = "Look at user and password_file of the bridge" if answer.reason in _LOGIN else None
    text = f"refuses the connection: {reason}{own_words(answer)}"
    return OncewayError(text, section.server, hint)
