"""Sessions of radio boards as the broker sees them: pauses, how they end, and log lines."""

import logging
import time
from unittest.mock import Mock

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.links import faults
from gateway.links.lora.frames import Hello
from gateway.links.lora.packing import PINGREQ, PINGRESP
from gateway.links.lora.transports import Transports
from gateway.links.lora.turns import Session, SessionStarted, TurnLink
from gateway.links.transport import Transport
from gateway.system.log_throttle import LogThrottle
from tests.links.board import Broker, Connection
from tests.links.lora.test_turns import Peer
from tests.links.lora.world import DEVICE, KEY, NETWORK

COMMAND = b"\x30\x50" + bytes(0x50)
"""A PUBLISH that fills an answer."""
READING = b"\x34\x06\x00\x01t\x00\x01\x00"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a new log throttle, so that earlier tests silence no message of this test."""
    monkeypatch.setattr(faults, "_throttle", LogThrottle(time.monotonic))


class Site(Broker):
    """A board in session with a gateway, whose broker records the calls. fails: whether the broker
    raises an error for the next connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.link = TurnLink(NETWORK, {DEVICE: KEY}.get)
        self.wake = Mock()
        self.transports = Transports(
            self.link,
            self.accept,
            {DEVICE: "roof-1"}.get,
            listener="radio",
            path="/dev/modem",
            wake=self.wake,
        )
        self.greet()

    def accept(self, transport: Transport) -> Connection:
        if self.fails:
            raise ArithmeticError("boom")
        return super().accept(transport)

    def greet(self) -> list[bytes | None]:
        """Let the board begin a session. If the broker accepts it, it answers the first turn.
        Return the contents of the frames that the board gets.
        """
        self.link.take(0.0)
        self.board, self.counter = Peer(self.link), -1
        return self.turn(PINGREQ, b"" if self.fails else PINGRESP)

    def turn(self, content: bytes, answer: bytes = b"") -> list[bytes | None]:
        """Let the board send a turn, and the broker write its answer. Return the contents of the
        frames that the board gets.
        """
        self.counter += 1
        now = 10.0 * self.counter
        for event in self.link.receive(self.board.turn(self.counter, content), now):
            self.transports.handle(event)
        self.transports.go_on()
        if answer:
            self.last.transport.write(answer)
        found = [self.board.read(out.frame, self.counter) for out in self.link.take(now)]
        self.transports.go_on()
        return found


def test_a_packet_too_long_for_the_board_ends_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker is in the middle of its own work while it writes, so it is told a moment later."""
    site = Site()
    first = site.last
    site.wake.reset_mock()
    first.transport.write(b"\x30\x60" + bytes(0x60))
    assert (first.reason, site.wake.called) == (None, True)
    first.transport.write(PINGRESP)
    site.transports.go_on()
    assert (first.reason, first.transport.unsent) == ("a packet that is too long", 0)
    assert "the broker tried to send a packet of more than 88 bytes" in caplog.text
    assert site.transports.names == []
    site.greet()
    assert site.transports.names == ["roof-1"]
    assert (site.last is first, len(site.connections)) == (False, 2)


def test_paused_reader_gets_its_packet_when_it_reads_on() -> None:
    site = Site()
    site.last.received.clear()
    site.last.transport.pause_reading()
    assert site.turn(READING) == []
    assert site.last.received == b""
    site.wake.reset_mock()
    site.last.transport.resume_reading()
    assert site.wake.called
    assert site.last.received == b"", "the broker is not called in the middle of its own work"
    site.transports.go_on()
    assert site.last.received == READING


def test_broker_that_wrote_much_is_called_once_when_little_of_it_remains() -> None:
    site = Site()
    transport = site.last.transport
    for _ in range(14):
        transport.write(COMMAND)
    assert transport.unsent > transport.high_water
    turns = 0
    while transport.unsent > transport.high_water // 4:
        assert site.last.writable_calls == 0
        turns += len(site.turn(PINGREQ, PINGRESP))
    assert turns == 11
    for _ in range(3):
        assert len(site.turn(PINGREQ, PINGRESP)) == 1
    assert site.last.writable_calls == 1


def test_an_aborted_connection_sends_no_more_packets() -> None:
    site = Site()
    first = site.last
    first.transport.write(COMMAND)
    first.transport.abort()
    assert first.transport.unsent == 0
    assert COMMAND not in site.turn(READING)
    assert (first.reason, first.received, site.transports.names) == (None, PINGREQ, [])
    site.greet()
    assert site.transports.names == ["roof-1"]


def test_a_board_that_is_not_accepted_gets_another_chance(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    first, site.fails = site.last, True
    assert site.greet() == [b""], "the board need not wait until it gives up"
    assert first.reason == "the device greets again"
    assert "ArithmeticError: boom" in caplog.text
    assert (site.transports.names, len(site.connections)) == ([], 1)
    site.fails = False
    site.greet()
    assert site.transports.names == ["roof-1"]
    device = site.last.transport.peer.device
    assert device is not None
    assert device == DeviceIdentity("roof-1", device.incarnation, 1, proved=True)


@pytest.mark.parametrize("closes", [False, True])
def test_an_error_in_the_broker_costs_that_session_only(
    closes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """closes: the broker has closed the connection before the error."""
    site = Site()
    first = site.last

    def fail(data: bytes) -> None:
        if closes:
            first.transport.close()
        raise ArithmeticError("boom")

    first.receive = fail  # type: ignore[method-assign]
    first.transport.write(COMMAND)
    assert site.turn(READING) == [b""], "the board need not wait until it gives up"
    assert "ArithmeticError: boom" in caplog.text
    assert first.reason == (None if closes else "internal error")
    assert site.transports.names == []
    site.greet()
    assert site.transports.names == ["roof-1"]


@pytest.mark.parametrize("closed", [False, True])
def test_closing_the_radio_loses_the_connections_that_the_broker_has_not_closed(
    closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site = Site()
    if closed:
        site.last.transport.close()
    site.transports.lose("the gateway closes the radio")
    assert site.last.reason == (None if closed else "the gateway closes the radio")
    assert caplog.text.count("roof-1: connection lost: the gateway closes") == (not closed)
    assert site.transports.names == []


def test_a_name_too_long_for_a_frame_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    names = {1: "a" * 15, 2: "a" * 14}
    transports = Transports(Mock(), Mock(), names.get, listener="radio", path="radio", wake=Mock())
    for number in (1, 2, 1):
        hello = Hello(0, number, boot=1, attempt=1, incarnation=7, next_sequence=1, mtu=96)
        transports.handle(SessionStarted(Session(Mock(), 96), hello, 7))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"{names[1]}: the name has 15 characters" in warning.getMessage()
    assert "device rename" in warning.getMessage()
