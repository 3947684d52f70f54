"""Like `exchange.py`, for a board with a radio: its real firmware and a gateway in this process,
both in board time, alone in the air and without the legal pauses. In: a firmware with a radio
(`provisioned` writes name, key and channel). Out: the publications that reached the gateway.
"""

from dataclasses import dataclass
from pathlib import Path

from intelhex import IntelHex

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.turns import Received, Session, SessionStarted, TurnLink
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Packet, Version
from gateway.mqtt.stream import PacketStream
from gateway.system.regions import Region, SubBand
from hil.boards.exchange import INCARNATION, Gateway
from hil.boards.simulator import HZ, SimulatedBoard
from provisioning.boards import board as kind
from provisioning.identity import Identity
from provisioning.radio_plan import RadioPlan, radio_page

KEY = bytes(range(1, 17))
_LAWLESS = Region(
    "nowhere", (SubBand("all", 868_000_000, 869_000_000, 1.0, 14, "no limit"),), 868_500_000
)
PLAN = RadioPlan(network=7, device=3, factor=7, frequency=_LAWLESS.frequency, region=_LAWLESS)
ANSWER_S = 0.04
"""Seconds from the end of a board's frame to the answer."""
_STEP_S = 0.01


def provisioned(firmware: Path, to: Path) -> Path:
    """Write an Uno's firmware with an identity page to the file `to`, and return `to`."""
    image = IntelHex(str(firmware))
    image.puts(kind("uno").identity, radio_page(Identity("radio-1", KEY), PLAN))
    image.write_hex_file(str(to))
    return to


@dataclass
class RadioGateway(Gateway):
    def __post_init__(self) -> None:
        self.turns = TurnLink(
            PLAN.network,
            {PLAN.device: KEY}.get,
            incarnation=lambda: INCARNATION,
            nonce=lambda: bytes(8),
        )
        self._stream = PacketStream(1024)
        self._incarnation = 0

    def hear(self, frame: bytes, now: float) -> list[bytes]:
        """Handle a frame that ended at `now`. Return the frames to send: the answer, or none."""
        for event in self.turns.receive(frame, now):
            if isinstance(event, SessionStarted):
                self._stream = PacketStream(1024)
                self._incarnation = event.incarnation
            elif isinstance(event, Received):
                self._stream.feed(event.data)
                for packet in self._stream:
                    self._say(event.session, packet)
        return [out.frame for out in self.turns.take(now)]

    def _say(self, session: Session, packet: Packet) -> None:
        for answer in self._answers(packet):
            self.turns.write(session, encode(answer, Version.V5))


async def converse_by_radio(
    board: SimulatedBoard, gateway: RadioGateway, *, arrived: int, seconds: float
) -> None:
    """Run board and gateway until the gateway has received `arrived` publications, for at most
    `seconds` of board time.
    """
    await board.run(0)
    events, heard = await board.subscribe(), (await board.stats()).frames
    end = board.cycle + int(seconds * HZ)
    while len(gateway.deliveries) < arrived and board.cycle < end:
        await board.run(round(_STEP_S * HZ))
        if (await board.stats()).frames == heard:
            continue
        heard += 1
        sent = await events.wait_for("radio")
        frame = bytes.fromhex(sent.details["frame"])
        airtime = Modulation(PLAN.factor).airtime(len(frame))
        over = sent.cycle + round((airtime + ANSWER_S) * HZ)
        await board.run(max(over - board.cycle, 0))
        for answer in gateway.hear(frame, board.cycle / HZ):
            await board.hear(answer)
