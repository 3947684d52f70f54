"""The serial listener, on pseudo-terminals."""

import array
import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from gateway.access.peer import DeviceIdentity
from gateway.errors import OncewayError
from gateway.links import serial_port
from gateway.links.diagnosis import Diagnosis, PrintedText, Restarts
from gateway.links.frames import handshake_to_bytes
from gateway.links.greeter import Greeter, Refusal
from gateway.links.handshake import Hello
from gateway.links.reliable import Event
from gateway.links.roles import UNHEARD_AFTER, DeviceLink, GatewayLink
from gateway.links.serial_port import SerialListener, SerialPort, _why_refused
from gateway.links.statistics import LinkStatistics
from gateway.links.tty import Tty
from gateway.system.log_throttle import LogThrottle
from tests.links.board import Board, Broker, Pty, until


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def line() -> Iterator[Pty]:
    line = Pty()
    yield line
    if line.master >= 0:
        os.close(line.master)


@pytest.fixture(autouse=True)
def quick_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_port, "SCAN_INTERVAL", 0.02)


@contextlib.asynccontextmanager
async def listening(
    broker: Broker, path: str, greeter: Greeter | None = None
) -> AsyncIterator[SerialListener]:
    listener = SerialListener(broker.accept, path, greeter or Greeter(1, incarnation=lambda: 77))
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


def statistics_of(listener: SerialListener) -> LinkStatistics:
    (port,) = listener.ports
    return port.statistics


async def test_a_device_is_accepted_with_its_identity_and_talks_both_ways(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path) as listener:
        board = Board(line)
        await until(lambda: board.started and broker.connections)
        peer = broker.last.transport.peer
        assert (peer.listener, peer.address) == ("serial", line.path)
        assert peer.device == DeviceIdentity("sensor-1", 77, 1)
        assert board.started[0].welcome.incarnation == 77
        data = bytes(range(256)) * 20
        board.write(data)
        broker.last.transport.write(data)
        await until(lambda: broker.last.received == data and board.received == data)
        statistics = statistics_of(listener)
        assert statistics.payload_bytes_received == len(data)
        await until(lambda: statistics.payload_bytes_acknowledged == len(data))
        assert statistics.sessions == 1
        assert statistics.crc_errors == statistics.malformed_frames == 0
        board.power_off()


async def test_idle_gateway_is_not_woken_by_timers(
    broker: Broker, line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wake-ups of the process are the largest part of a reading's CPU time."""
    vain: list[float] = []
    tick = GatewayLink.tick

    def looked(link: GatewayLink, now: float) -> list[Event]:
        if link.deadline is None or link.deadline > now:
            vain.append(now)
        return tick(link, now)

    monkeypatch.setattr(GatewayLink, "tick", looked)
    async with listening(broker, line.path) as listener:
        board = Board(line)
        await until(lambda: board.started and broker.connections)
        statistics = statistics_of(listener)
        for number in range(1, 21):
            broker.last.transport.write(b"x")
            await until(lambda number=number: statistics.payload_bytes_acknowledged == number)  # type: ignore[misc]
        await asyncio.sleep(0.3)  # longer than any timer of an acknowledgement
        assert not vain
        board.power_off()


async def test_a_rebooted_device_is_noticed(broker: Broker, line: Pty) -> None:
    async with listening(broker, line.path) as listener:
        board = Board(line)
        await until(lambda: board.started)
        board.write(b"half a pack")
        await until(lambda: broker.last.received)
        board.power_off()
        board = Board(line, boot=2, incarnation=77)
        await until(lambda: len(broker.connections) == 2)
        assert broker.connections[0].reason == "the device was rebooted"
        assert statistics_of(listener).reboots == 1
        await until(lambda: board.started)
        board.write(b"whole")
        await until(lambda: broker.last.received == b"whole")
        board.power_off()


async def test_restarted_gateway_sends_who_and_the_device_greets_again(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
    async with listening(broker, line.path, Greeter(2)):
        await until(lambda: len(board.started) == 2)
        assert board.ended == ["the gateway has no session"]
        assert board.started[1].welcome.gateway_boot == 2
        assert board.started[1].welcome.incarnation == 77
        board.power_off()


async def test_close_sends_what_is_queued_and_then_asks_for_a_new_greeting(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
        connection = broker.last
        farewell = b"x" * 900
        connection.transport.write(farewell)
        connection.transport.close()
        connection.transport.write(b"too late")
        await until(lambda: len(board.started) == 2)
        assert board.streams == [farewell, b""]
        assert connection.reason is None
        board.power_off()


async def test_unsent_counts_down_and_writable_is_called_once_below_the_mark(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
        transport = broker.last.transport
        transport.write(b"y" * (transport.high_water + 1000))
        assert transport.unsent == transport.high_water + 1000
        await until(lambda: broker.last.writable_calls)
        assert transport.unsent <= transport.high_water
        await until(lambda: transport.unsent == 0)
        assert broker.last.writable_calls == 1
        board.power_off()


async def test_a_paused_reader_holds_a_bounded_amount_and_loses_nothing(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path) as listener:
        board = Board(line, mtu=240, window=4)
        await until(lambda: board.started)
        broker.last.transport.pause_reading()
        data = os.urandom(6000)
        board.write(data)
        statistics = statistics_of(listener)
        await until(lambda: board.link.statistics.retransmissions > 4)
        assert broker.last.received == b""
        assert 0 < statistics.payload_bytes_received <= 4 * 4 * 240
        broker.last.transport.resume_reading()
        await until(lambda: broker.last.received == data)
        board.power_off()


async def test_unplugged_the_connection_is_lost_and_plugged_in_again_it_comes_back(
    broker: Broker, line: Pty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "usb-board"
    async with listening(broker, str(path)) as listener:
        await until(lambda: caplog.records)
        path.symlink_to(line.path)
        board = Board(line)
        await until(lambda: board.started)
        board.power_off()
        line.unplug()
        await until(lambda: broker.last.reason)
        assert broker.last.reason == "the serial port is gone"
        path.unlink()
        again = Pty()
        path.symlink_to(again.path)
        board = Board(again, boot=2)
        await until(lambda: len(broker.connections) == 2 and board.started)
        (port,) = listener.ports
        assert (port.path, port.is_open, port.device, port.problem) == (
            str(path),
            True,
            "sensor-1",
            None,
        )
        board.power_off()
        again.unplug()
    messages = [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert sum("no such serial port" in message for message in messages) <= 2
    assert sum("gone" in message for message in messages) == 1
    # one line for each opening of the port, and for each connection of a board
    assert caplog.messages.count(f"{path}: opened at 115200 baud") == 2
    assert [text.partition(", next")[0] for text in caplog.messages if " greets" in text] == [
        f"{path}: sensor-1 greets without a key, boot {boot}" for boot in (1, 2)
    ]


async def test_a_missing_port_is_logged_once(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(broker, str(tmp_path / "absent")) as listener:
        port = listener._ports[str(tmp_path / "absent")]
        for _ in range(5):
            port.open()
        (status,) = listener.ports
        assert (status.is_open, status.device) == (False, None)
        assert "no such serial port" in (status.problem or "")
    assert len(caplog.records) == 1
    assert "ls /dev/serial/by-id" in caplog.text


async def test_a_pattern_finds_ports_and_opens_two_names_of_one_board_once(
    broker: Broker, tmp_path: Path
) -> None:
    lines = [Pty(), Pty()]
    (tmp_path / "usb-a").symlink_to(lines[0].path)
    (tmp_path / "usb-a-again").symlink_to(lines[0].path)
    (tmp_path / "other").symlink_to(lines[1].path)
    async with listening(broker, str(tmp_path / "usb-*")) as listener:
        boards = [Board(lines[0], "a"), Board(lines[1], "b")]
        await until(lambda: broker.connections)
        (tmp_path / "usb-b").symlink_to(lines[1].path)
        await until(lambda: len(broker.connections) == 2)
        assert [
            connection.transport.peer.device.name
            for connection in broker.connections
            if connection.transport.peer.device
        ] == ["a", "b"]
        assert sum(port.is_open for port in listener.ports) == 2
        for board in boards:
            board.power_off()
    for line in lines:
        line.unplug()


async def test_greetings_of_ever_new_names_fill_neither_the_log_nor_the_memory(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    greeter = Greeter(1, admit=lambda name, proved: Refusal.STRANGER)
    async with listening(broker, line.path, greeter) as listener:
        for number in range(2000):
            data = Hello(number, 1, 0, 1, 56, 2, f"stranger-{number}").to_bytes()
            while data:
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(line.master, data) :]
                with contextlib.suppress(BlockingIOError):
                    os.read(line.master, 1 << 16)
                await asyncio.sleep(0)
        await until(lambda: listener.ports[0].refused == "stranger-1999")
        (port,) = listener._ports.values()
        assert len(port._logged) <= 64
    assert 10 < caplog.text.count("is not admitted") < 40


async def test_a_device_that_is_not_admitted_is_refused_and_named_once(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    admitted: set[str] = set()

    def admit(name: str, proved: bool) -> Refusal | None:
        return None if name in admitted else Refusal.STRANGER

    async with listening(broker, line.path, Greeter(1, admit=admit)) as listener:
        for boot in (1, 2):
            board = Board(line, "stranger", boot=boot)
            await until(lambda: board.refused)  # noqa: B023
            board.power_off()
        assert not broker.connections
        problem = listener.ports[0].problem or ""
        assert problem.startswith("the device 'stranger' is not admitted")
        assert "`onceway device admit stranger`" in problem
        assert listener.ports[0].refused == "stranger"
        admitted.add("stranger")
        board = Board(line, "stranger", boot=3)
        await until(lambda: board.started)
        assert (listener.ports[0].problem, listener.ports[0].refused) == (None, None)
        board.power_off()
    assert caplog.text.count("the device 'stranger' is not admitted") == 1


@pytest.mark.parametrize("key", [None, bytes(16)])
async def test_a_board_that_does_not_hear_the_gateway_is_named(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture, key: bytes | None
) -> None:
    """The gateway receives the board's HELLOs, but the board receives nothing."""
    greeting = DeviceLink("roof-1", boot=1, key=key)
    async with listening(broker, line.path) as listener:
        (port,) = listener.ports
        for second in range(UNHEARD_AFTER):
            assert not port.unheard
            received = port.statistics.frames_received
            greeting.tick(10.0 * second)
            os.write(line.master, greeting.take())
            await until(lambda: listener.ports[0].statistics.frames_received > received)  # noqa: B023
            (port,) = listener.ports
        assert port.unheard
        said = "the board 'roof-1' greets, but does not hear the gateway. Check the wire"
        assert (port.problem or "").startswith(said)
        assert caplog.text.count(said) == 1
        board = Board(line, "roof-1", boot=2)
        await until(lambda: board.started)
        board.write(b"heard")
        await until(lambda: not listener.ports[0].unheard)
        assert listener.ports[0].problem is None
        board.power_off()


@pytest.mark.parametrize("end", [b"\r\n", b" ", b"\t\r"])
async def test_a_sketch_that_prints_between_the_frames_is_named(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture, end: bytes
) -> None:
    async with listening(broker, line.path) as listener:
        board = Board(line, "roof-1")
        await until(lambda: board.started)
        for number in range(1200):  # a frame that is repeated is not mixed with the text
            os.write(line.master, b"T=%d.5%b" % (number, end))
            board.write(b"reading " * 4)
            await asyncio.sleep(0.05)
            if listener.ports[0].problem:
                break
        said = "its sketch prints to the link's own UART ('T="
        assert (listener.ports[0].problem or "").startswith(said)
        assert "ow_log" in caplog.text
        assert caplog.text.count(said) == 1
        board.power_off()


@pytest.mark.parametrize(
    "data",
    [
        b"sensors/roof-1/status and more of it",
        b"\x00\xff\x01\n" * 50,
        b"a line\n" * 9,
        b"\x00\x1f{'json': 'of a frame'}\x07\x91\x00",
    ],
)
def test_content_of_frames_is_not_taken_for_printed_text(data: bytes) -> None:
    prints = PrintedText()
    intact = data.startswith(b"a line")
    assert all(prints.bytes_received(data, not intact) is None for _ in range(9))


@pytest.mark.parametrize(("power_on", "said"), [(False, "takes more than 2 s"), (True, "supply")])
async def test_a_board_that_starts_again_and_again_is_named(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture, power_on: bool, said: str
) -> None:
    async with listening(broker, line.path) as listener:
        for boot in range(1, 8):
            assert listener.ports[0].problem is None or boot > 5
            board = Board(line, "roof-1", boot=boot, power_on=power_on)
            await until(lambda: board.started)  # noqa: B023
            board.power_off()
        problem = listener.ports[0].problem or ""
        assert problem.startswith("the board starts again and again (5 times in 0 s)")
        assert said in problem
    assert caplog.text.count("starts again and again") == 1


async def test_a_board_that_its_watchdog_resets_before_it_answers_is_no_matter_of_the_wire(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop of the sketch calls delay(3000), so the watchdog resets the board after one poll.
    The board has sent its HELLO, but never reads the answer.
    """
    async with listening(broker, line.path) as listener:
        for boot in range(1, 2 * UNHEARD_AFTER):
            received = listener.ports[0].statistics.frames_received
            greeting = DeviceLink("roof-1", boot=boot, key=bytes(16))
            greeting.tick(10.0)
            os.write(line.master, greeting.take())
            await until(lambda: listener.ports[0].statistics.frames_received > received)  # noqa: B023
        (port,) = listener.ports
        assert (port.unheard, port.starts) == (False, boot)
        assert (port.problem or "").startswith("the board starts again and again (5 times in 0 s)")
    assert caplog.text.count("starts again and again") == 1
    assert "does not hear the gateway" not in caplog.text


@pytest.mark.parametrize(("every_s", "span"), [(3, "12 s"), (60, "4 minutes"), (840, "56 minutes")])
def test_restarts_at_any_pace_of_an_hour_are_a_loop_until_they_end(every_s: int, span: str) -> None:
    restarts = Restarts()
    for boot in range(4):
        restarts.started(boot, False, every_s * boot)
        assert not restarts.verdict(every_s * boot)
    restarts.started(4, False, 4 * every_s)
    assert f"(5 times in {span})" in (restarts.verdict(4 * every_s) or "")
    over = 4 * every_s + max(4 * every_s, 60)
    assert restarts.verdict(over)
    assert not restarts.verdict(over + 1)


def test_restarts_that_are_far_apart_or_sessions_of_one_start_are_no_loop() -> None:
    restarts = Restarts()
    for boot in range(30):
        restarts.started(boot, False, 901.0 * boot)
        assert not restarts.verdict(901.0 * boot)
    for second in range(30):
        restarts.started(29, False, 29 * 901.0 + second)
        assert not restarts.verdict(29 * 901.0 + second)


async def test_other_version_of_the_link_is_reported_with_the_command(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(broker, line.path):
        for _ in range(2):
            os.write(line.master, handshake_to_bytes(0, b"\x03 whatever comes then"))
        await until(lambda: "speaks version 3 of the link" in caplog.text)
    assert f"`onceway device flash NAME --port {line.path}`" in caplog.text
    assert caplog.text.count("speaks version 3") == 1


def test_a_name_that_is_a_command_is_quoted_where_people_copy_it() -> None:
    said = _why_refused("a; reboot", Refusal.STRANGER, "/dev/ttyUSB0")
    assert "`onceway device admit 'a; reboot'`" in said
    assert "`onceway device add NAME --port /dev/ttyUSB0`" in _why_refused(
        "", Refusal.NO_PROOF, "/dev/ttyUSB0"
    )


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (b"Hello from a sketch, temperature 21.5\r\n" * 20, "sends text"),
        (bytes(range(1, 256)) * 3, "another rate than 115200 baud"),
    ],
)
async def test_a_stranger_gets_one_clear_line(
    noise: bytes, said: str, broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(broker, line.path) as listener:
        for _ in range(4):
            os.write(line.master, noise)
            await until(lambda: statistics_of(listener).bytes_received % len(noise) == 0)
        await until(lambda: statistics_of(listener).bytes_received == 4 * len(noise))
        assert len([one for one in caplog.records if one.levelno > logging.INFO]) == 1
        assert said in caplog.text
        assert said in (listener.ports[0].problem or "")
        board = Board(line)  # it may still be flashed and then greet
        await until(lambda: board.started)
        board.power_off()


async def test_an_error_in_the_broker_costs_that_connection_only(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
        connection = broker.last
        connection.receive = lambda data: 1 / 0  # type: ignore[method-assign, assignment]
        board.write(b"boom")
        await until(lambda: len(board.started) == 2)
        assert connection.reason == "internal error"
        assert "ZeroDivisionError" in caplog.text
        board.write(b"fine")
        await until(lambda: broker.last.received == b"fine")
        board.power_off()


async def test_ports_that_flood_noise_do_not_disturb_the_others(broker: Broker) -> None:
    lines = [Pty() for _ in range(8)]
    async with contextlib.AsyncExitStack() as stack:
        for line in lines:
            await stack.enter_async_context(listening(broker, line.path))
        board = Board(lines[0])
        await until(lambda: board.started)
        loop = asyncio.get_running_loop()
        flooding = True

        def flood(fd: int) -> None:
            if flooding:
                with contextlib.suppress(BlockingIOError):
                    os.write(fd, os.urandom(230))  # 20 ms at 115200 baud
                loop.call_later(0.02, flood, fd)

        for line in lines[1:]:
            flood(line.master)
        for number in range(50):
            board.write(b"reading %d\n" % number)
            await until(
                lambda: board.link.session is not None and not board.link.session.sending.unsent
            )
        assert broker.last.received == b"".join(b"reading %d\n" % number for number in range(50))
        # on a busy machine one may be late; a port that waited for the floods would repeat all
        assert board.link.statistics.retransmissions < 10
        flooding = False
        board.power_off()
    for line in lines:
        line.unplug()


def test_a_port_in_use_is_refused(line: Pty) -> None:
    with Tty(line.path, 115200), pytest.raises(OncewayError, match="in use by another program"):
        Tty(line.path, 115200)
    Tty(line.path, 115200).close()


async def test_holder_of_a_port_is_logged_once(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        f"from gateway.links.tty import Tty; import sys; port = Tty({line.path!r}, 115200);"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        async with listening(broker, line.path) as listener:
            for _ in range(3):
                listener._ports[line.path].open()
            assert [
                record.getMessage()
                for record in caplog.records
                if f"(pid {holder.pid})" in record.getMessage()
            ] == [record.getMessage() for record in caplog.records]
            assert len(caplog.records) == 1
            holder.communicate()
            await until(lambda: listener.ports[0].is_open)


def test_a_rate_far_too_low_shows_itself_by_a_few_bytes_in_a_long_time() -> None:
    diagnosis = Diagnosis(9600)
    verdicts = [diagnosis.bytes_received(b"\x80\xff\x00\xfe", 2.0 * number) for number in range(10)]
    assert [number for number, verdict in enumerate(verdicts) if verdict] == [5]
    assert "another rate than 9600 baud" in (verdicts[5] or "")


def test_a_device_whose_first_greetings_were_damaged_is_no_stranger() -> None:
    diagnosis = Diagnosis(115200)
    assert not diagnosis.bytes_received(bytes(range(1, 46)), 0.0)
    assert not diagnosis.bytes_received(bytes(range(1, 46)), 2.0)
    diagnosis.intact_frame()
    assert not diagnosis.bytes_received(bytes(range(1, 46)), 60.0)


def test_path_that_is_not_a_serial_port_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "absent", tmp_path):
        with pytest.raises(OncewayError) as caught:
            Tty(str(path), 115200)
        assert caught.value.where == str(path)


def test_a_file_that_its_owner_has_locked_is_no_port_in_use(tmp_path: Path) -> None:
    with (tmp_path / "eeprom.bin").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for path in (file.name, str(tmp_path)):
            with pytest.raises(OncewayError, match="this is not a serial port"):
                Tty(path, 115200)


def test_closing_keeps_dtr_and_the_line_is_raw(line: Pty) -> None:
    with Tty(line.path, 250_000) as port:
        settings = array.array("I", bytes(64))
        # TCGETS2, for speeds that have no name in termios
        fcntl.ioctl(port.fd, 0x802C542A, settings)
        assert list(settings[9:11]) == [250_000, 250_000]
        iflag, oflag, cflag, lflag, *_ = termios.tcgetattr(port.fd)
        assert not cflag & termios.HUPCL
        assert not lflag & (termios.ICANON | termios.ECHO | termios.ISIG)
        assert not iflag & (termios.IXON | termios.ICRNL)
        assert not oflag & termios.OPOST
        assert fcntl.fcntl(port.fd, fcntl.F_GETFL) & os.O_NONBLOCK
        assert fcntl.fcntl(port.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_deadline_that_has_passed_is_armed_again_before_it_fires() -> None:
    """For a time in the past, uvloop's `call_at` returns a handle without `when`. The resulting
    error once ended a turn of the gateway half-way.
    """
    loop = uvloop.new_event_loop()
    port = object.__new__(SerialPort)
    port._loop, port._timer, port._due = loop, None, 0.0
    port._on_timer = lambda: None
    port.link = SimpleNamespace(deadline=loop.time() - 1)
    try:
        port._arm()
        port._arm()
        assert port._timer is not None
        port._timer.cancel()
    finally:
        loop.close()


# -- the end of a session, and of a port


def frames(board: Board, *pieces: bytes) -> list[bytes]:
    """Switch a board off. Return one last frame for each piece, as its link would send it."""
    board.power_off()
    session, found = board.link.session, []
    assert session is not None
    for piece in pieces:
        board.link.write(session, piece, asyncio.get_running_loop().time())
        found.append(board.link.take())
    return found


def hello(name: str = "sensor-1", boot: int = 2) -> bytes:
    return Hello(boot, 0, 0, 1, 56, 2, name).to_bytes()


async def test_aborted_connection_ends_at_once_and_the_board_greets_again(
    broker: Broker, line: Pty
) -> None:
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
        first = broker.last
        first.transport.write(bytes(3000))
        first.transport.abort()
        assert first.transport.closed
        await until(lambda: len(board.started) == 2)
        assert len(board.streams[0]) < 3000
        assert (first.reason, first.received) == (None, b"")
        board.write(b"fine")
        await until(lambda: broker.last.received == b"fine")
        board.power_off()


async def test_connection_that_the_broker_has_closed_gets_no_more_calls(
    broker: Broker, line: Pty
) -> None:
    """All this arrives in one read: a packet after which the broker closes, a refused HELLO, one
    more packet, and the HELLO of the board's next start.
    """
    greeter = Greeter(
        1, admit=lambda name, proved: None if name == "sensor-1" else Refusal.STRANGER
    )
    async with listening(broker, line.path, greeter):
        board = Board(line)
        await until(lambda: board.started)
        first = broker.last
        receive = first.receive

        def receive_and_close(data: bytes) -> None:
            receive(data)
            first.transport.close()

        first.receive = receive_and_close  # type: ignore[method-assign]
        packet, another = frames(board, b"last", b"too late")
        os.write(line.master, packet + hello("stranger") + another + hello())
        await until(lambda: len(broker.connections) == 2)
        assert (first.received, first.reason) == (b"last", None)


async def test_a_board_that_is_not_accepted_gets_another_chance(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = SerialListener(lambda transport: broker.accept(transport), line.path, Greeter(1))
    with monkeypatch.context() as patch:
        patch.setattr(broker, "accept", lambda transport: 1 / 0)
        await listener.start()
        board = Board(line)
        await until(lambda: "ZeroDivisionError" in caplog.text)
        (port,) = listener.ports
        assert (port.is_open, port.device) == (True, None)
    await until(lambda: broker.connections and board.link.session is not None)
    board.write(b"fine")
    await until(lambda: broker.last.received == b"fine")
    board.power_off()
    await listener.close()


async def test_refused_stranger_is_no_problem_of_the_board_in_session(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    greeter = Greeter(
        1, admit=lambda name, proved: None if name == "sensor-1" else Refusal.STRANGER
    )
    async with listening(broker, line.path, greeter) as listener:
        board = Board(line)
        await until(lambda: board.started)
        os.write(line.master, hello("stranger"))
        await until(lambda: "the device 'stranger' is not admitted" in caplog.text)
        (port,) = listener.ports
        assert (port.device, port.refused, port.problem) == ("sensor-1", None, None)
        board.write(b"fine")
        await until(lambda: broker.last.received == b"fine")
        board.power_off()


async def test_a_port_that_takes_a_few_bytes_at_a_time_loses_none(
    broker: Broker, line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Tty.write
    monkeypatch.setattr(Tty, "write", lambda port, data: write(port, data[:3]))
    async with listening(broker, line.path):
        board = Board(line)
        await until(lambda: board.started)
        data = bytes(range(256)) * 4
        broker.last.transport.write(data)
        await until(lambda: board.received == data)
        assert board.link.statistics.crc_errors == board.link.statistics.malformed_frames == 0
        board.power_off()


async def test_a_port_that_fails_twice_at_once_is_lost_once(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(port: Tty, data: bytes) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async with listening(broker, line.path) as listener:
        board = Board(line)
        await until(lambda: board.started)
        first = broker.last
        with monkeypatch.context() as patch:
            patch.setattr(Tty, "write", fail)
            first.transport.write(b"one")
            first.transport.write(b"two")
            await until(lambda: first.reason)
        assert first.reason == "the serial port is gone"
        assert caplog.text.count("gone (Input/output error)") == 1
        await until(lambda: len(board.started) == 2)
        assert listener.ports[0].problem is None
        board.power_off()


async def test_a_lent_port_is_closed_until_it_is_given_back(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lines, lent = [Pty(), Pty()], set[str]()
    for number, line in enumerate(lines):
        (tmp_path / f"usb-{number}").symlink_to(line.path)
    listener = SerialListener(broker.accept, str(tmp_path / "usb-*"), Greeter(1), lent=lent)
    await listener.start()
    boards = [Board(line, f"sensor-{number}") for number, line in enumerate(lines)]
    await until(lambda: len(broker.connections) == 2)
    first, second = sorted(broker.connections, key=lambda found: found.transport.peer.address)
    device = os.readlink(lines[0].path)
    for _ in range(2):
        lent.add(device)
        listener.lend(device)
    assert (first.reason, second.reason) == (serial_port.LENT, None)
    ports = {port.path[-1]: port for port in listener.ports}
    assert (ports["0"].is_open, ports["0"].problem) == (False, serial_port.LENT)
    assert (ports["1"].is_open, ports["1"].problem) == (True, None)
    assert caplog.messages.count(f"{tmp_path}/usb-0: {serial_port.LENT}") == 1
    Tty(lines[0].path, 115_200).close()
    lent.clear()
    await until(lambda: len(broker.connections) == 3)
    assert {port.problem for port in listener.ports} == {None}
    for board in boards:
        board.power_off()
    await listener.close()
    for line in lines:
        line.unplug()


async def test_a_sentence_is_logged_again_only_after_64_others(
    broker: Broker, line: Pty, caplog: pytest.LogCaptureFixture
) -> None:
    port = SerialPort(line.path, 115_200, "serial", broker.accept, Greeter(1))
    minutes = iter(range(1_000_000))
    port._throttle = LogThrottle(lambda: 3600.0 * next(minutes))
    for number in (*range(65), 64, 1, 0):
        port._warn(f"sentence {number}.")
    said = [message.partition(": ")[2] for message in caplog.messages]
    assert said == [f"sentence {number}." for number in (*range(65), 0)]
    assert port.status.problem == "sentence 0."


async def test_a_listener_that_never_started_can_be_closed(broker: Broker, line: Pty) -> None:
    """For example, the gateway cannot listen on a later listener's address."""
    listener = SerialListener(broker.accept, line.path, Greeter(1))
    await listener.close()
    assert listener.ports == []
    Tty(line.path, 115_200).close()
