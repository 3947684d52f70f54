"""The connection to the other broker: TCP or TLS, CONNECT, and packets.

In: where it is, who we are there, packets to send. Out: what its CONNACK allows, packets as they
come, and the end of the connection with its reason, in words for the log. A peer that says nothing
for longer than the keep alive is taken for dead.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import cast

from gateway.config import READS_REASON_CODES, BridgeSection, split_broker
from gateway.errors import OncewayError
from gateway.links.tls import client_context
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Side,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream

CONNECT_S = 20.0
"""For TCP, TLS and CONNACK together."""
KEEP_ALIVE_S = 30
RECEIVE_MAXIMUM = 64
KEPT_S = 30 * 86_400
"""How long the other broker keeps our session while we are away: what it remembers then is of
messages that were under way, and what has come for us."""
_LOGIN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)


class Far(asyncio.Protocol):
    """came: called with the packets of one read, after `open` has returned. lost: called once, with
    the reason, when the connection has ended by itself. drained: there is room again for bytes.
    """

    high_water = 256 * 1024

    def __init__(
        self,
        came: Callable[[list[Packet]], None],
        lost: Callable[[str], None],
        drained: Callable[[], None],
        packet_bytes: int,
    ) -> None:
        self._came = came
        self._lost = lost
        self._drained = drained
        self._packet_bytes = packet_bytes
        self._stream = PacketStream(packet_bytes, Version.V5, Side.SERVER)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._connack: asyncio.Future[Connack] = self._loop.create_future()
        self._early: list[Packet] | None = []
        """What came before `listen`."""
        self._closed = False
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._keep_alive = float(KEEP_ALIVE_S)

    # -- begin and end

    async def open(self, section: BridgeSection, client: str) -> Connack:
        """Connect and say CONNECT. OncewayError with the reason when that does not work."""
        host, port, encrypted = split_broker(section.server)
        password = _password(section)
        context = (
            client_context(section.ca, section.certificate, section.key) if encrypted else None
        )
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: self, host, port, ssl=context)
                self.send([self._hello(section, client, password)])
                answer = await self._connack
        except TimeoutError:
            self.close()
            raise OncewayError("it does not answer", section.server) from None
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
        wanted = (answer.properties or {}).get(PropertyId.SERVER_KEEP_ALIVE, KEEP_ALIVE_S)
        self._keep_alive = float(wanted or KEEP_ALIVE_S)
        self._timer = self._loop.call_later(self._keep_alive / 2, self._look)
        return answer

    def _hello(self, section: BridgeSection, client: str, password: bytes | None) -> Connect:
        return Connect(
            client,
            clean_start=False,
            keep_alive=KEEP_ALIVE_S,
            username=section.user,
            password=password,
            properties={
                PropertyId.SESSION_EXPIRY_INTERVAL: KEPT_S,
                PropertyId.RECEIVE_MAXIMUM: RECEIVE_MAXIMUM,
                PropertyId.MAXIMUM_PACKET_SIZE: self._packet_bytes,
                PropertyId.USER_PROPERTY: [READS_REASON_CODES],
            },
        )

    def listen(self) -> None:
        """From now on packets go to `came`."""
        early, self._early = self._early, None
        if early:
            self._came(early)

    def close(self, forget: bool = False) -> None:
        """End it from this side; `lost` is not called. forget: the session there ends, too."""
        if self._transport is not None and not self._closed:
            expiry = {PropertyId.SESSION_EXPIRY_INTERVAL: 0} if forget else None
            self.send([Disconnect(ReasonCode.NORMAL_DISCONNECTION, expiry)])
            self._transport.close()
        self._end()

    def _end(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _drop(self, reason: str) -> None:
        """Tell whoever waits, once."""
        if self._closed:
            return
        self._end()
        if self._transport is not None:
            self._transport.abort()
        if not self._connack.done():
            self._connack.set_exception(OncewayError(reason))
        else:
            self._lost(reason)

    # -- packets

    def send(self, packets: Iterable[Packet]) -> None:
        """In one write."""
        if self._transport is not None and not self._closed:
            self._transport.write(b"".join(encode(packet, Version.V5) for packet in packets))

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
        """Say that we are there, and see whether the other broker is."""
        silent = self._loop.time() - self._heard
        if silent > 1.5 * self._keep_alive:
            self._drop(f"it has said nothing for {silent:.0f} s")
            return
        self.send([Pingreq()])
        self._timer = self._loop.call_later(self._keep_alive / 2, self._look)

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
            self._drop(f"it sends what is no MQTT: {error}")
            return
        if packets and not self._connack.done():
            answer = packets.pop(0)
            if not isinstance(answer, Connack):
                self._drop(f"it answers CONNECT with {type(answer).__name__}")
                return
            self._connack.set_result(answer)
        for packet in packets:
            if isinstance(packet, Disconnect):
                self._drop(f"it ended the connection ({packet.reason.name})")
                return
        packets = [packet for packet in packets if not isinstance(packet, Pingresp)]
        if self._early is not None:
            self._early += packets
        elif packets:
            self._came(packets)

    def resume_writing(self) -> None:
        if not self._closed:
            self._drained()

    def connection_lost(self, error: Exception | None) -> None:
        self._drop(str(error) if error else "it closed the connection")


def check(section: BridgeSection) -> None:
    """OncewayError when a file that the section names cannot be used."""
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
            "The service's user must be able to read it",
        ) from error


def _refused(section: BridgeSection, answer: Connack) -> OncewayError:
    what = answer.reason.name.lower().replace("_", " ")
    hint = "Look at user and password_file of the bridge" if answer.reason in _LOGIN else None
    return OncewayError(f"lets us not in: {what}", section.server, hint)
