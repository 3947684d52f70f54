"""Reports and refusals of boards: what `gateway status` and `onceway device list` show."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import cbor2
import pytest

from gateway.boards.admission import FILE
from gateway.boards.payload_conflicts import KEPT, LONGEST
from gateway.boards.reports import FORGET_US, MOST_BOARDS, MOST_FAULTS, Boards, read
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Publish, Version
from gateway.mqtt.reason import ReasonCode
from gateway.payload import answers
from gateway.payload.faults import WORDS, words
from provisioning.registry import Registry
from tests.benchmarks.load import connect_packet
from tests.links.board import Board, Pty, until
from tests.service.process import START_S, GatewayProcess, gateway

ONCEWAY = Path(sys.executable).with_name("onceway")
RECEIVED = b"\x50\x02\x00\x01"
"""PUBREC of packet 1."""
STATUS = [{-2: "roof-1:", 0: "boot", 2: 3}, {0: "life", 2: 11.4}, {0: "worn", 2: 2}]


def troubles(boards: Boards, monotonic: int) -> list[str]:
    return [text for _, text in boards.problems(monotonic)]


def note_publication(
    boards: Boards, topic: str, reason: ReasonCode | None, now: int, payload: bytes = b""
) -> None:
    boards.note_publication("roof-1", topic, payload, reason, now, 1_767_225_600_000_000)


def test_a_refusal_is_a_trouble_until_it_ends_or_is_long_ago(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    for now in (0, 1):
        note_publication(boards, "sensors/roof-1/status", ReasonCode.NOT_AUTHORIZED, now)
    note_publication(boards, "sensors/roof-1/adc0", None, 2)
    assert troubles(boards, 2) == [
        "roof-1: publications to 'sensors/roof-1/status' are refused"
        " (not authorized, 0x87; 2 so far)"
    ]
    assert troubles(boards, 1 + FORGET_US) == []
    note_publication(boards, "sensors/roof-1/status", None, 3)
    assert troubles(boards, 3) == []


def test_a_full_spool_is_no_trouble_of_a_board(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    note_publication(boards, "t", ReasonCode.QUOTA_EXCEEDED, 0)
    assert troubles(boards, 0) == []


def test_status_of_a_board_outlives_the_gateway(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    note_publication(boards, "sensors/roof-1/status", None, 0, cbor2.dumps(STATUS))
    text = boards.news()
    assert text
    assert boards.news() is None, "nothing new"
    boards.write(text)
    expected = {"boot": 3, "life": 11.4, "worn": 2, "seen": 1_767_225_600}
    assert Boards(tmp_path).status("roof-1") == read(tmp_path)["roof-1"] == expected


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff" * 9,
        cbor2.dumps([{-2: "roof-2:", 0: "life", 2: 1}]),
        cbor2.dumps([{-2: "roof-1:", 0: "life", 2: float("nan")}]),
        cbor2.dumps([{-2: "roof-1:", 0: "life", 2: "long"}]),
        cbor2.dumps({"a": 1}),
        b"\x9b" + b"\xff" * 8,
        b"\x81" * 200,
    ],
)
def test_payloads_that_are_not_a_status_are_ignored(tmp_path: Path, payload: bytes) -> None:
    boards = Boards(tmp_path)
    note_publication(boards, "sensors/roof-1/status", None, 0, payload)
    assert boards.status("roof-1") is None


def test_a_command_that_a_board_does_not_know_is_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boards = Boards(tmp_path)
    for payload in (b"unknown command: blnik", b"unknown command: \xff\n" + b"x" * 300):
        note_publication(boards, "logs/roof-1", None, 0, payload)
        note_publication(boards, "logs/roof-1", ReasonCode.NOT_AUTHORIZED, 0, payload)
    first, second = caplog.messages
    assert first == (
        "roof-1: the board does not know the command 'blnik';"
        " Onceway's sensor knows `interval N s`, `identify` and `reboot`"
    )
    assert "\n" not in second
    assert len(second) < 200
    assert caplog.records[0].__dict__["about"] == {"client": "roof-1"}


def test_lost_publication_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    boards = Boards(tmp_path)
    for sequence in (70, 1234):
        boards.last_publications.hear(("roof-1", 1, sequence), b"lost", 0)
        note_publication(boards, "logs/roof-1", None, 0, b"lost")
    assert caplog.messages[-1] == (
        "roof-1: publication 1234 is lost: its bytes in the board's memory changed while it waited"
    )
    assert caplog.records[-1].__dict__["about"] == {"client": "roof-1"}
    assert troubles(boards, 0) == [
        "roof-1: publication 1234 was damaged in the board's memory and is lost (2 since the"
        " gateway's start): if this happens again, replace the board"
    ]
    assert troubles(boards, FORGET_US) == []


def pack(*records: tuple[str, float]) -> bytes:
    first, *rest = [{0: name, 2: value} for name, value in records]
    return cbor2.dumps([{-2: "roof-1:"} | first, *rest])


STATUS_TOPIC = "sensors/roof-1/status"


@pytest.mark.parametrize("number", range(1, len(WORDS) + 1))
def test_a_broken_sensor_is_a_trouble_until_it_is_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    caplog.set_level("INFO")
    boards = Boards(tmp_path)
    last_publications = f"roof-1: 'temperature' {words(number)}"
    for _ in range(2):
        note_publication(boards, STATUS_TOPIC, None, 0, pack(("temperature.fault", number)))
    assert "has no value" in last_publications
    assert caplog.messages == troubles(boards, 0) == [last_publications]
    text = boards.news()
    assert text
    boards.write(text)
    assert troubles(Boards(tmp_path), 0) == [last_publications], "a restart forgets it"
    note_publication(boards, STATUS_TOPIC, None, 0, pack(("temperature.fault", 0)))
    assert troubles(boards, 0) == []
    assert caplog.messages[-1] == "roof-1: 'temperature' has values again"


def test_a_value_ends_the_fault_of_its_own_quantity(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    note_publication(
        boards, STATUS_TOPIC, None, 0, pack(("temperature.fault", 1), ("humidity.fault", 3))
    )
    note_publication(boards, "sensors/roof-1", None, 0, pack(("voltage", 3.3)))
    assert len(troubles(boards, 0)) == 2
    note_publication(boards, "sensors/roof-1", None, 0, pack(("temperature", 20.5)))
    assert troubles(boards, 0) == [f"roof-1: 'humidity' {words(3)}"]


def test_a_fault_and_the_figures_of_a_status_keep_one_another(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    note_publication(boards, STATUS_TOPIC, None, 0, pack(("boot", 3), ("life", 11.4)))
    note_publication(boards, STATUS_TOPIC, None, 0, pack(("temperature.fault", 1)))
    assert boards.status("roof-1") == {
        "boot": 3,
        "life": 11.4,
        "temperature.fault": 1,
        "seen": 1_767_225_600,
    }
    note_publication(boards, STATUS_TOPIC, None, 0, pack(("boot", 4)))
    assert len(troubles(boards, 0)) == 1
    assert (boards.status("roof-1") or {})["boot"] == 4


def test_a_board_tells_a_bounded_number_of_faults(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    for first in (0, 8, 16):
        names = [(f"q{number}.fault", 1.0) for number in range(first, first + 8)]
        note_publication(boards, STATUS_TOPIC, None, 0, pack(*names))
    assert len(troubles(boards, 0)) == MOST_FAULTS


def test_another_boards_word_is_no_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    boards = Boards(tmp_path)
    boards.last_publications.hear(("roof-2", 1, 70), b"lost", 0)
    note_publication(boards, "logs/roof-1", None, 0, b"lost")
    note_publication(boards, "readings/roof-2", None, 0, b"lost")
    assert caplog.messages == []
    assert troubles(boards, 0) == []


def test_a_log_line_of_eight_characters_is_no_answer(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    for text in (b"3 resets", b" warning", b"2 errors"):
        assert answers.read(text), "it has the form of one"
        note_publication(boards, "logs/roof-1", None, 0, text)
    assert not boards.answers
    note_publication(boards, "logs/roof-1", None, 0, bytes.fromhex("33 616263 00000001"))
    assert boards.answers["roof-1"].correlation == b"abc"
    high = bytes.fromhex("23 E1E2E3 F0F0F0F0")
    note_publication(boards, "logs/roof-1", None, 0, high)
    assert boards.answers["roof-1"].correlation == high[1:4]


def test_other_answers_are_not_taken_for_an_unknown_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boards = Boards(tmp_path)
    note_publication(boards, "logs/roof-2", None, 0, b"unknown command: blnik")
    note_publication(boards, "sensors/roof-1/adc0", None, 0, b"unknown command: blnik")
    note_publication(boards, "logs/roof-1", None, 0, b"1767225600 unknown command: blnik")
    assert not caplog.records


def test_boards_without_end_take_memory_with_an_end(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    for number in range(MOST_BOARDS + 10):
        name = f"b{number}"
        payload = cbor2.dumps([{-2: f"{name}:", 0: "life", 2: 1}])
        boards.note_publication(name, "/status", payload, None, 0, None)
        boards.note_publication(name, "t", b"", ReasonCode.NOT_AUTHORIZED, 0, None)
    assert boards.status("b9") is None
    assert boards.status(name) == {"life": 1}
    assert len(troubles(boards, 0)) == MOST_BOARDS


def test_another_payload_under_a_used_sequence_is_a_trouble_and_another_wording_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def last_publications(value: float, **time: int) -> bytes:
        return cbor2.dumps([{0: "a", 2: value, **({6: time["at"]} if time else {})}])

    boards = Boards(tmp_path)
    boards.last_publications.hear(("roof-1", 7, 1), last_publications(2.5), 0)
    boards.last_publications.hear(("roof-1", 7, 1), last_publications(2.5), 0)
    boards.last_publications.hear(
        ("roof-1", 7, 1), last_publications(2.5, at=1_767_225_600), 0
    )  # the board has learned the time
    boards.last_publications.hear(
        ("roof-1", 8, 1), last_publications(9), 0
    )  # the board's memory was emptied
    boards.last_publications.hear(("roof-2", 8, 1), last_publications(9.5), 0)
    assert troubles(boards, 0) == []
    assert not caplog.records
    for payload in (last_publications(3), b"no SenML", last_publications(4)):
        boards.last_publications.hear(("roof-2", 8, 1), payload, 5)
    assert [message.partition(" arrived again")[0] for message in caplog.messages] == [
        "payload conflict: roof-2 (incarnation 8) sequence 1"
    ] * 2
    assert boards.payload_conflicts == 3
    (trouble,) = troubles(boards, 5)
    assert trouble.startswith("roof-2: sequence 1 arrived again with another payload (3 since")
    assert troubles(boards, 5 + FORGET_US) == []


def test_each_publication_that_the_window_calls_a_duplicate_is_compared(tmp_path: Path) -> None:
    last_publications = Boards(tmp_path).last_publications
    for sequence in range(1, 65):
        last_publications.hear(("roof-1", 7, sequence), b"one", 0)
    last_publications.hear(("roof-1", 7, 1), b"two", 0)
    assert last_publications.payload_conflicts["roof-1"].sequence == 1


def test_payloads_that_cannot_be_compared_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(first: bytes, second: bytes) -> bool:
        raise TypeError("a mistake of ours in the comparison")

    monkeypatch.setattr("gateway.payload.rewording.says_the_same", fails)
    last_publications = Boards(tmp_path).last_publications
    for payload in (b"one", b"two"):
        last_publications.hear(("roof-1", 7, 1), payload, 0)
    assert last_publications.payload_conflicts["roof-1"].count == 1


def test_publications_kept_for_conflicts_are_bounded(tmp_path: Path) -> None:
    last_publications = Boards(tmp_path).last_publications
    for number in range(KEPT + 1):
        last_publications.hear(("a", 1, number), b"%d" % number, 0)
    last_publications.hear(("a", 1, 1), b"other", 0)
    assert last_publications.payload_conflicts["a"].count == 1
    last_publications.hear(("a", 1, 0), b"other", 0)  # the oldest publication is no longer kept
    last_publications.hear(("b", 1, 0), bytes(LONGEST + 1), 0)
    last_publications.hear(("b", 1, 0), bytes(LONGEST + 2), 0)
    assert last_publications.payload_conflicts.keys() == {"a"}
    for number in range(MOST_BOARDS):
        last_publications.hear((f"c{number}", 1, 1), b"", 0)
    last_publications.hear(("a", 1, 2), b"other", 0)
    assert last_publications.payload_conflicts["a"].count == 1


def test_a_damaged_file_is_an_empty_one(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"roof-1": 3}', '{"roof-1": {"life": "x"}}'):
        (tmp_path / "boards.json").write_text(text)
        assert read(tmp_path) == {}


@pytest.fixture
def line() -> Iterator[Pty]:
    yield (line := Pty())
    os.close(line.master)


@asynccontextmanager
async def gateway_on(line: Pty, folder: Path) -> AsyncIterator[GatewayProcess]:
    """Run a gateway whose access rules let boards publish readings, but not their status."""
    config = folder / "gateway.toml"
    config.write_text(
        f'[gateway]\ndata = "{folder}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        '[uplink]\nlanding = "file:///landing"\n'
        f'[[serial]]\nport = "{line.path}"\nopen = true\n'
        '[[acl]]\nboards = true\nwrite = ["sensors/%c/adc0", "boards/%c/status"]\n'
    )
    async with gateway(folder, "--config", str(config)) as running:
        yield running


async def onceway(*command: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        ONCEWAY, *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), START_S)
    return process.returncode, out.decode()


async def test_a_refused_status_is_seen_and_a_taken_one_is_shown(tmp_path: Path, line: Pty) -> None:
    Registry(tmp_path / FILE).admit("roof-1")
    async with gateway_on(line, tmp_path) as running:
        board = Board(line, "roof-1")
        await until(lambda: board.started)
        board.write(connect_packet("roof-1", clean=True))
        await until(lambda: board.received)
        told = Publish("boards/roof-1/status", cbor2.dumps(STATUS), qos=1, packet_id=1)
        refused = Publish("sensors/roof-1/status", b"", qos=1, packet_id=2)
        for packet, answer in ((told, b"\x40\x02\x00\x01"), (refused, b"\x40\x03\x00\x02\x87")):
            board.write(encode(packet, Version.V5))
            await until(lambda answer=answer: answer in board.received)
        await running.logged("topic 'sensors/roof-1/status': not authorized (0x87)")

        code, text = await onceway("gateway", "status", "--data", str(tmp_path))
        assert code == 1
        assert "roof-1: publications to 'sensors/roof-1/status' are refused" in text
        await until(lambda: "life" in read(tmp_path).get("roof-1", {}))
        registry = str(tmp_path / FILE)
        code, text = await onceway("device", "list", "--registry", registry, "--json")
        [row] = json.loads(text)
        assert (row["name"], row["life"], row["worn"], row["aside"]) == ("roof-1", 11.4, 2, None)
        _, table = await onceway("device", "list", "--registry", registry)
        assert "11.4 years, failed writes: 2" in table
        board.power_off()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_repetition_with_another_payload_is_acknowledged_and_reported(
    tmp_path: Path, line: Pty, restarts: bool
) -> None:
    """The broker must drop the repeated publication [MQTT-4.3.3-10], so only the report shows its
    other payload. After a restart, the gateway reads the first payload from the spool.
    """
    Registry(tmp_path / FILE).admit("roof-1")

    async def publishes(value: int) -> Board:
        board = Board(line, "roof-1", incarnation=7)
        await until(lambda: board.started)
        board.write(connect_packet("roof-1", clean=False))
        await until(lambda: board.received)
        await says(board, value)
        return board

    async def says(board: Board, value: int) -> None:
        before = board.received.count(RECEIVED)
        payload = cbor2.dumps([{0: "adc0", 2: value}])
        packet = Publish("sensors/roof-1/adc0", payload, qos=2, dup=value > 1, packet_id=1)
        board.write(encode(packet, Version.V5))
        await until(lambda: board.received.count(RECEIVED) > before)

    async with gateway_on(line, tmp_path) as running:
        board = await publishes(1)
        if restarts:
            board.power_off()
            await running.end(signal.SIGKILL)
        else:
            await says(board, 2)
            await is_told(running, tmp_path)
            board.power_off()
    if restarts:
        async with gateway_on(line, tmp_path) as running:
            board = await publishes(2)
            await is_told(running, tmp_path)
            board.power_off()


async def is_told(running: GatewayProcess, folder: Path) -> None:
    await running.logged("payload conflict: roof-1")
    _, text = await onceway("gateway", "status", "--data", str(folder))
    assert "roof-1: sequence 1 arrived again with another payload (1 since" in text
