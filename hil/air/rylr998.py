"""An RYLR998 as a process: `python -m hil.air.rylr998 --air SOCKET --port LINK [--name NAME] [--at
X Y]`. Source: Reyax's AT command guide. The modem's frames on the air begin with eight bytes. The
guide gives only their number, so the rig itself defines their meaning.

In: bytes of a pseudo-terminal, and frames on the air. Out: frames for the air, and bytes for the
pseudo-terminal. SIGUSR1 resets the modem: it answers +READY and keeps its settings. After SIGUSR2
it accepts no bytes from the host until the next reset.
"""

import re
from collections.abc import Callable

from hil.air.modem import main

LONGEST = 240
HEAD = 8
EVERYBODY = 0
NOT_AT, UNKNOWN, LENGTH, CRC, TOO_LONG, BUSY, PREAMBLE = 2, 4, 5, 12, 13, 17, 18
CHOOSES_PREAMBLE, OTHERS_PREAMBLE = 18, 12
_SEND = re.compile(rb"AT\+SEND=(\d{1,5}),(\d{1,3}),")
_ASKS = re.compile(rb"AT\+(\w+)\?")
_TELLS = re.compile(rb"AT\+(\w+)=([\d,]+)")


def prefix(network: int, to: int, sender: int, length: int) -> bytes:
    """Return the eight bytes before a frame's data. to, sender: addresses. length: data bytes."""
    return bytes((network, *to.to_bytes(2, "big"), *sender.to_bytes(2, "big"), length, 0, 0))


class Modem:
    """Modem firmware, without I/O. say: sends bytes to the host. air: sends lines to the ether."""

    def __init__(self, say: Callable[[bytes], None], air: Callable[[str], None]) -> None:
        self._say = say
        self._air = air
        self.settings = {
            b"BAND": b"915000000",
            b"PARAMETER": b"9,7,1,12",
            b"NETWORKID": b"18",
            b"ADDRESS": b"0",
            b"CRFOP": b"22",
        }
        self.reset()

    def reset(self) -> None:
        """Reset as after a power cut. The settings are in flash and stay."""
        self.hangs = False
        self._input = b""
        self._pending = False
        self._air("off")  # cuts off a frame that is being sent
        self._listen()
        self._say(b"+READY\r\n")

    def feed(self, data: bytes) -> None:
        self._input += data
        while not self.hangs and (command := self._next()) is not None:
            if command:
                self._on_command(command)

    def sent(self) -> None:
        if self._pending and not self.hangs:
            self._pending = False
            self._say(b"+OK\r\n")
            self._listen()

    def heard(self, rssi: float, snr: float, frame: bytes) -> None:
        """Handle a frame of another radio. A frame of another kind of modem counts as damaged."""
        network, to = frame[0], int.from_bytes(frame[1:3], "big")
        data = frame[HEAD:]
        if len(frame) <= HEAD or len(data) != frame[5]:
            self._error(CRC)
        elif network == int(self.settings[b"NETWORKID"]) and to in (EVERYBODY, self._address):
            sender = int.from_bytes(frame[3:5], "big")
            head = b"+RCV=%d,%d,%b" % (sender, len(data), data)
            self._say(head + b",%d,%d\r\n" % (round(rssi), round(snr)))

    @property
    def _address(self) -> int:
        return int(self.settings[b"ADDRESS"])

    @property
    def _parameters(self) -> list[int]:
        return [int(number) for number in self.settings[b"PARAMETER"].split(b",")]

    def _listen(self) -> None:
        self._air(f"listen {self.settings[b'BAND'].decode()} 125000 {self._parameters[0]}")

    def _error(self, code: int) -> None:
        self._say(b"+ERR=%d\r\n" % code)

    def _next(self) -> bytes | None:
        """Return the next command without CR LF, or None if it is incomplete. AT+SEND has the
        length of its data, which may contain CR LF.
        """
        if head := _SEND.match(self._input):
            end = head.end() + int(head[2])
            if len(self._input) < end + 2:
                return None
            if self._input[end : end + 2] == b"\r\n":
                command, self._input = self._input[:end], self._input[end + 2 :]
                return command
        command, found, rest = self._input.partition(b"\r\n")
        if not found:
            return None
        self._input = rest
        return command

    def _on_command(self, command: bytes) -> None:
        if command == b"AT":
            self._say(b"+OK\r\n")
        elif not command.startswith(b"AT"):
            self._error(NOT_AT)
        elif head := _SEND.match(command):
            self._on_send(int(head[1]), int(head[2]), command[head.end() :])
        elif command == b"AT+VER?":
            self._say(b"+VER=RYLR998_REYAX_V1.2.2\r\n")
        elif (asked := _ASKS.fullmatch(command)) and asked[1] in self.settings:
            self._say(b"+%b=%b\r\n" % (asked[1], self.settings[asked[1]]))
        elif (setting := _TELLS.fullmatch(command)) and setting[1] in self.settings:
            self._on_setting(setting[1], setting[2])
        else:
            self._error(UNKNOWN)

    def _on_setting(self, name: bytes, value: bytes) -> None:
        before = self.settings[name]
        self.settings[name] = value
        factor, bandwidth, _, preamble = self._parameters
        chooses = int(self.settings[b"NETWORKID"]) == CHOOSES_PREAMBLE
        if factor not in range(7, 10) or bandwidth != 7:  # 125 kHz
            self.settings[name] = before
            self._error(UNKNOWN)
        elif not (4 <= preamble <= 24 if chooses else preamble == OTHERS_PREAMBLE):
            self.settings[name] = before
            self._error(PREAMBLE)
        else:
            self._say(b"+OK\r\n")
            self._listen()

    def _on_send(self, to: int, length: int, data: bytes) -> None:
        if self._pending:
            self._error(BUSY)
        elif length > LONGEST:
            self._error(TOO_LONG)
        elif length != len(data):
            self._error(LENGTH)
        else:
            self._pending = True
            factor, _, coding, preamble = self._parameters
            frame = prefix(int(self.settings[b"NETWORKID"]), to, self._address, length) + data
            frequency, power = self.settings[b"BAND"].decode(), self.settings[b"CRFOP"].decode()
            self._air(f"send {frequency} 125000 {factor} {coding} {preamble} {power} {frame.hex()}")


if __name__ == "__main__":
    main("hil.air.rylr998", Modem)
