"""What a wire is given to carry, read along: frames of the reliable link (gateway/links) and the
MQTT packets in them, before any harm.

In: the bytes that each end sends, in pieces. Out: for each direction counts of frames and PUBLISH
packets, and how many of them were sent again; to who wants it, the handshakes, publications and
acknowledgements themselves, as events. No I/O, and nothing is changed.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gateway.links.frames import (
    HANDSHAKE_SEED,
    HANDSHAKE_TYPE,
    MODULO,
    Data,
    FrameDecoder,
    FrameError,
    fits,
    frame_type,
    handshake_from_body,
)
from gateway.links.handshake import Hello, Welcome
from gateway.links.statistics import LinkStatistics
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import Pubcomp, Publish, Pubrel, Side, Version
from gateway.mqtt.stream import PacketStream

COUNTED = ("frames", "frames_again", "publishes", "publishes_again")
LONGEST_PACKET = 65_536  # bytes; a board takes and sends much less

Tell = Callable[[dict[str, Any]], object]


class Tap:
    """counts: per direction, DATA frames (`frames`) and those of them that were sent before
    (`frames_again`); PUBLISH packets (`publishes`) and those of them with DUP (`publishes_again`).
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self.counts = {direction: dict.fromkeys(COUNTED, 0) for direction in ("up", "down")}
        self._tell = tell
        self._cutters = {direction: FrameDecoder(LinkStatistics()) for direction in self.counts}
        self._seed: int | None = None
        self._expected: dict[str, int] = {}
        self._streams: dict[str, PacketStream | None] = {}

    def feed(self, direction: str, data: bytes) -> None:
        for body in self._cutters[direction].feed(data):
            with suppress(FrameError):  # what breaks the format, no end takes
                if frame_type(body) == HANDSHAKE_TYPE and fits(body, HANDSHAKE_SEED):
                    self._handshake(direction, *handshake_from_body(body))
                elif (
                    frame_type(body) == Data.TYPE
                    and self._seed is not None
                    and fits(body, self._seed)
                ):
                    self._data(direction, Data.from_body(body))

    def _handshake(self, direction: str, kind: int, payload: bytes) -> None:
        if direction == "up" and kind == Hello.KIND:
            hello = Hello.from_payload(payload)
            names = ("name", "boot", "incarnation", "next_sequence", "power_on")
            self._say("hello", {name: getattr(hello, name) for name in names})
        elif direction == "down" and kind == Welcome.KIND:
            welcome = Welcome.from_payload(payload)
            if not welcome.refused and welcome.seed != self._seed:
                self._begin(welcome.seed)
                self._say("welcome", {"incarnation": welcome.incarnation})

    def _begin(self, seed: int) -> None:
        """A new session: both ends count from 0 and begin a Network Connection."""
        self._seed = seed
        self._expected = dict.fromkeys(self.counts, 0)
        self._streams = {
            "up": PacketStream(LONGEST_PACKET),
            "down": PacketStream(LONGEST_PACKET, Version.V5, Side.SERVER),
        }

    def _data(self, direction: str, frame: Data) -> None:
        """A sender repeats what it has in flight, which is less than half of the numbers: a number
        that lies behind comes again.
        """
        counts = self.counts[direction]
        counts["frames"] += 1
        ahead = (frame.sequence - self._expected[direction]) % MODULO
        if ahead >= MODULO // 2:
            counts["frames_again"] += 1
            return
        if ahead:  # some came while nobody read
            self._streams[direction] = None
        self._expected[direction] = (frame.sequence + 1) % MODULO
        if stream := self._streams[direction]:
            stream.feed(frame.payload)
            try:
                for packet in stream:
                    self._packet(direction, packet)
            except MqttError:
                self._streams[direction] = None

    def _packet(self, direction: str, packet: object) -> None:
        match packet:
            case Publish(topic=topic, payload=payload, packet_id=identifier, dup=dup):
                self.counts[direction]["publishes"] += 1
                self.counts[direction]["publishes_again"] += dup
                self._say(
                    "publish",
                    {
                        "direction": direction,
                        "id": identifier,
                        "topic": topic,
                        "payload": payload.hex(),
                    },
                )
            case Pubrel(packet_id=identifier) | Pubcomp(packet_id=identifier):
                self._say(type(packet).__name__.lower(), {"direction": direction, "id": identifier})

    def _say(self, event: str, data: dict[str, Any]) -> None:
        if self._tell:
            self._tell({"event": event, **data})
