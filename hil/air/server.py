"""The ether as a process: `python -m hil.air.server --socket PATH [--report FILE] [--trace NAME
[--pace N] [--longest-outage N]] [--seed N] [--scale N] [--sent NAME SECONDS AGE] [--tell]`.

In: radios that connect to the Unix socket. Out: the frames that each radio hears, in real time. At
its end (SIGTERM): a report as JSON, and exit code 1 if the law was broken.

--tell: print lines of JSON. `frame`: each ended frame (t in ns of the monotonic clock, from, to,
frame in hex). At the end: `radio`, the counts of each radio (line, frames, airtime in s);
`replayed`, the part of the recording that each link used (from, to, and the summary of
hil/traces/replay.py); `breach`, each breach of the law (why).

--sent: the report of radio NAME begins with SECONDS of airtime in the sub-band P, which ended AGE
seconds ago. --scale: one second holds N seconds of the ether, so frames and hours are shorter.

Messages are lines of words separated by spaces:

    radio → air   radio NAME X Y            the first line of a radio; its place in metres
                  listen FREQUENCY BANDWIDTH FACTOR
                  sleep
                  off                       sleep at once; a frame being sent is cut off
                  send FREQUENCY BANDWIDTH FACTOR CODING PREAMBLE POWER HEX
                  inject HEX                a frame that takes no time and overlaps with no
                                            other, from a foreign radio (foreign.py)
    air → radio   sent                      the last symbol was sent
                  heard RSSI SNR HEX
                  error WORDS               the line is invalid; the connection ends
    rig → air     carry NAME X Y            moves this radio to a place; the line
                                            does not come from a radio
    air → rig     carried
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hil.air.ether import Ether, Frame, Heard, Radio
from hil.air.law import Judge
from hil.air.loss import Recorded
from hil.air.physics import Channel
from hil.traces import LONGEST_OUTAGE
from hil.traces.recording import load

LONGEST_LINE = 1024
EU868_P = 869_525_000
BOARDS = "lora-"
"""Beginning of the names of boards. (Each gateway's modem is named after its gateway.)"""

Say = Callable[[str, dict[str, Any]], None]


class Air:
    """The ether on a Unix socket. scale: seconds of the ether's time in one real second. say:
    called with name and fields of each event; None if no events are wanted.
    """

    def __init__(self, ether: Ether, scale: float, say: Say | None = None) -> None:
        self.ether = ether
        self._say = say
        self._scale = scale
        self._loop = asyncio.get_running_loop()
        self._writers: dict[Radio, asyncio.StreamWriter] = {}
        self._began = self._loop.time()

    @property
    def now(self) -> float:
        """Seconds of the ether since the start."""
        return (self._loop.time() - self._began) * self._scale

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, either of a radio or of the rig, which moves radios."""
        radio: Radio | None = None
        try:
            while line := await reader.readline():
                words = line.decode("ascii").split()
                if radio is None and words[:1] == ["carry"]:
                    _, name, x, y = words
                    self.ether.carry(name, (float(x), float(y)))
                    writer.write(b"carried\n")
                elif radio is None:
                    radio = self._join(words, writer)
                else:
                    self._obey(radio, words)
        except (ValueError, IndexError, UnicodeDecodeError) as error:
            writer.write(f"error {error}\n".encode())
        finally:
            if radio is not None:
                self._leave(radio)
            writer.close()

    def _join(self, words: Sequence[str], writer: asyncio.StreamWriter) -> Radio:
        word, name, x, y = words
        if word != "radio":
            raise ValueError(f"{word} from a radio without a name")
        known = self.ether.radios.get(name)
        if known is not None and known not in self._writers:  # the radio was off, and is back
            known.place = float(x), float(y)
            radio = known
        else:
            radio = self.ether.join(name, (float(x), float(y)))
        self._writers[radio] = writer
        return radio

    def _leave(self, radio: Radio) -> None:
        """Remove a radio. A frame that it is sending is cut off; its airtime counts until then."""
        del self._writers[radio]
        self._silence(radio)

    def _silence(self, radio: Radio) -> None:
        if (frame := radio.sending) is not None:
            frame.end = min(frame.end, self.now)
            frame.cut = True
            self.ether.end(frame)
        self.ether.listen(radio, None, self.now)

    def _obey(self, radio: Radio, words: Sequence[str]) -> None:
        match words:
            case ["sleep"]:
                self.ether.listen(radio, None, self.now)
            case ["off"]:
                self._silence(radio)
            case ["listen", *channel]:
                self.ether.listen(radio, Channel(*map(int, channel)), self.now)
            case ["inject", data]:
                for one in self.ether.inject(radio, bytes.fromhex(data), self.now):
                    self._tell(one.radio, _heard(one))
            case ["send", frequency, bandwidth, factor, coding, preamble, power, data]:
                frame = self.ether.send(
                    radio,
                    bytes.fromhex(data),
                    Channel(int(frequency), int(bandwidth), int(factor)),
                    self.now,
                    coding=int(coding),
                    preamble=int(preamble),
                    power=float(power),
                )
                end = self._began + frame.end / self._scale
                self._loop.call_at(end, self._end, frame)
            case _:
                raise ValueError(f"{' '.join(words)[:80]!r} is not a request")

    def _end(self, frame: Frame) -> None:
        if frame.cut:
            return
        heard = self.ether.end(frame)
        if self._say:
            to = [one.radio.name for one in heard]
            sender, data = frame.sender.name, frame.data.hex()
            self._say("frame", {"t": time.monotonic_ns(), "from": sender, "to": to, "frame": data})
        self._tell(frame.sender, "sent")
        for one in heard:
            self._tell(one.radio, _heard(one))

    def _tell(self, radio: Radio, words: str) -> None:
        if radio in self._writers:
            self._writers[radio].write(f"{words}\n".encode())

    def report(self) -> dict[str, Any]:
        """Return the radios' counts, worst hours and breaches of the law. Airtimes in seconds."""
        judge = self.ether.judge
        return {
            "seconds": self.now,
            "radios": {
                radio.name: dict(radio.counts) | {"airtime": radio.airtime}
                for radio in self.ether.radios.values()
            },
            "worst_hours": {f"{name} {band}": used for (name, band), used in judge.worst.items()},
            "breaches": judge.breaches,
        }


def _heard(one: Heard) -> str:
    return f"heard {one.rssi:.1f} {one.snr:.2f} {one.data.hex()}"


def say(event: str, data: dict[str, Any]) -> None:
    print(json.dumps({"event": event, **data}), flush=True)


async def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    trace = load(options.trace) if options.trace else None
    longest = options.longest_outage
    loses = Recorded(trace, options.seed, options.pace, longest) if trace else None
    judge = Judge(boards=BOARDS)
    if options.sent:
        name, airtime, age = options.sent
        for _ in range(int(airtime)):  # all at one time, so any hour contains all or none
            judge.sent(name, EU868_P, 125_000, 14, -float(age) - 1, -float(age))
    ether = Ether(judge, loses) if loses else Ether(judge)
    air = Air(ether, options.scale, say if options.tell else None)
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    server = await asyncio.start_unix_server(air.serve, options.socket, limit=LONGEST_LINE)
    print("ready", flush=True)
    await over.wait()
    report = air.report()
    server.close()
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    if options.tell:
        for name, counts in report["radios"].items():
            hours = [used for key, used in report["worst_hours"].items() if key.split()[0] == name]
            say("radio", {"line": name, **counts, "hour": max(hours, default=0.0)})
        for link in loses.summaries() if loses else ():
            say("replayed", link)
        for breach in report["breaches"]:
            say("breach", {"why": breach})
    for breach in report["breaches"]:
        print(f"error: {breach}", file=sys.stderr)
    return 1 if report["breaches"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="hil.air.server")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--trace")
    parser.add_argument("--pace", type=float)
    parser.add_argument("--longest-outage", type=float, default=LONGEST_OUTAGE)
    parser.add_argument("--sent", nargs=3, metavar=("NAME", "SECONDS", "AGE"))
    parser.add_argument("--tell", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
