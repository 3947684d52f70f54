"""LoRa: the airtime of a reading, the share of the legal airtime that a gateway can use, and the
CPU time of a turn.

The airtime is computed from frames that the codec makes, not from a table of frame lengths. The
exchanges are those of a station whose boards never pause, for three hours of simulated time. No
other product is measured: each result is compared with a fixed goal.
"""

import sys
import time

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.exchange import Radio, preamble
from gateway.links.lora.frames import (
    ANSWER,
    DOWN,
    LOW,
    TURN,
    UP,
    Header,
    Hello,
    SessionCipher,
    Welcome,
)
from gateway.links.lora.ledger_file import Ledgers
from gateway.links.lora.packing import Answer, Turn, expected, pack_answer, pack_turn
from gateway.links.lora.turns import Received, TurnLink
from gateway.system.regions import EU868
from tests.benchmarks.report import Figure, report

KEY = bytes(range(16))
NETWORK, DEVICE = 1, 1
TURNS = 20_000
HOURS = 3
GOALS = {Radio.SX127X: "≤ 400", Radio.KISS: "≤ 490", Radio.RYLR998: "≤ 500"}
"""Goals for the airtime of a reading at SF9, in ms."""


def reading(identifier: int) -> Turn:
    """Return a board's turn with PUBREL of the previous reading and PUBLISH with 20 bytes."""
    released = b"\x62\x02" + (identifier - 1).to_bytes(2, "big")
    head = b"\x34\x1c\0\0" + identifier.to_bytes(2, "big") + b"\x03\x23\0\x01"
    return Turn((released, head + bytes(20)))


def airtime(factor: int, radio: Radio) -> float:
    """Return the airtime of the two frames of a reading, in ms."""
    cipher, turn = SessionCipher(KEY), reading(9)
    up = cipher.seal(Header(NETWORK, DEVICE, TURN, 1), UP, 1, pack_turn(turn))
    done = pack_answer(Answer(tuple(expected(turn))), turn)
    down = cipher.seal(Header(NETWORK, DEVICE, ANSWER, 1), DOWN, 1, done)
    more = 8 if radio is Radio.RYLR998 else 0
    answers = Modulation(factor, preamble=preamble(radio, factor))
    return (Modulation(factor).airtime(len(up) + more) + answers.airtime(len(down) + more)) * 1000


def used(factor: int) -> float:
    """Return the share of the legal airtime that a station uses if it always has an answer to send.
    The first hour does not count.
    """
    ledgers, now = Ledgers(EU868, "bench", None, 0.0), 0.0
    length, sent = Modulation(factor).airtime(8), 0.0
    band = EU868.band(EU868.frequency).name
    while now < HOURS * EU868.hour:
        if ledgers.low(band):
            ledgers.ask(band, length, now)
            ledgers.grant()
        wait = ledgers.ledger(band).wait(length, now)
        now += wait
        if wait == 0.0:
            ledgers.spend(band, length, now)
            sent += length if now >= EU868.hour else 0.0
            now += length
    return sent / ((HOURS - 1) * ledgers.ledger(band).limit)


def cpu() -> float:
    """Return the gateway's CPU time for a turn (open, unpack, pack and seal), without broker and
    store, in µs.
    """
    link = TurnLink(NETWORK, {DEVICE: KEY}.get)
    hello = Hello(NETWORK, DEVICE, 1, 0, 0, 1, 96).signed(KEY, 1)
    link.receive(hello.to_bytes(), 0.0)
    ((offered),) = link.take(0.0)
    cipher = SessionCipher(hello.session(KEY, Welcome.from_frame(offered.frame).nonce))
    frames, answers = [], []
    for counter in range(TURNS):
        turn = reading(counter + 2)
        header = Header(NETWORK, DEVICE, TURN, counter & LOW)
        frames.append(cipher.seal(header, UP, counter, pack_turn(turn)))
        answers.append(b"".join(expected(turn)))
    started = time.process_time()
    for counter, frame in enumerate(frames):
        received = link.receive(frame, float(counter))[-1]
        assert isinstance(received, Received)
        link.write(received.session, answers[counter])
        assert len(link.take(float(counter))) == 1
    return (time.process_time() - started) / TURNS * 1e6


def main() -> int:
    figures = [
        Figure(
            f"lora: airtime of a QoS 2 exchange, 20 bytes, SF{factor}, {radio}",
            airtime(factor, radio),
            "ms",
            GOALS[radio] if factor == 9 else None,
        )
        for radio in Radio
        for factor in (7, 9, 12)
        if factor < 10 or radio is not Radio.RYLR998
    ]
    figures += [
        Figure(
            f"lora: exchanges an hour against the legal limit, SF{factor}",
            used(factor),
            "",
            "≥ 0.95",
        )
        for factor in (7, 9, 12)
    ]
    figures.append(Figure("lora: CPU of a turn, without broker and store", cpu(), "µs"))
    return 0 if report(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
