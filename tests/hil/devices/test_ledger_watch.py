"""Events that the rig derives from the EEPROM writes of a simulated board."""

from binascii import crc_hqx
from pathlib import Path

import pytest

from hil.boards.ledger import ERASED, RELEASED_AT, RELEASED_MASK, SLOT_SIZE, SLOTS, SLOTS_AT
from hil.boards.simulator import SimulatedBoard
from hil.devices.ledger_watch import LedgerWatch
from hil.devices.simulated import interval_record
from hil.observe.history import Event, History, read

INCARNATION = 0xC0FFEE
SOURCE = bytes(6) + b"\0\0"
DONE_AT = 15
SLOT_STARTS = range(SLOTS_AT, SLOTS_AT + SLOTS * SLOT_SIZE, SLOT_SIZE)
Writes = list[tuple[int, int]]


def sealed(record: bytes) -> bytes:
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def entered(folder: Path, writes: Writes, *, swapped: bool = False) -> list[tuple[str, int, int]]:
    """Write the cells of a board's EEPROM one by one, and let the rig watch them. Return event,
    incarnation and sequence of each event about a publication.
    """
    events = witnessed(folder, writes, swapped=swapped)
    return [
        (event.event, event.data["incarnation"], event.data["sequence"])
        for event in events
        if "sequence" in event.data
    ]


def below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def witnessed(folder: Path, writes: Writes, *, swapped: bool = False) -> list[Event]:
    history = History(folder / "history.jsonl")
    board = SimulatedBoard(folder / "board")
    board.directory.mkdir()
    board.eeprom_image.write_bytes(ERASED)
    witness = LedgerWatch("uno-1", board, history, interval_record(200))
    slots = [cycle for cycle, (address, _) in enumerate(writes) if address in SLOT_STARTS]
    conversions = "".join(
        f"{cycle} {1000 + cycle} 0 {2_500_000 + 5000 * n}\n" for n, cycle in enumerate(slots)
    )
    board.adc_log.write_text("0 1000 start power-on\n" + conversions)
    with board.eeprom_log.open("w") as log:
        for cycle, (address, value) in enumerate(writes):
            log.write(f"{cycle} {address:03x} {value:02x} 0\n")
            log.flush()
            witness.look()
    image = bytearray(ERASED)
    for address, value in writes:
        image[address] = value
    board.eeprom_image.write_bytes(image)
    witness.close(swapped=swapped)
    history.close()
    return list(read(history.path))


def incarnation() -> Writes:
    return list(enumerate(sealed(INCARNATION.to_bytes(4)), 0x008))


def slot(sequence: int) -> Writes:
    return list(enumerate(sealed(sequence.to_bytes(4) + SOURCE), SLOTS_AT + SLOT_SIZE * sequence))


def mark(sequence: int, at: int, value: int) -> Writes:
    return [(SLOTS_AT + SLOT_SIZE * sequence + at, value)]


def test_a_release_taken_back_is_a_publication_again(tmp_path: Path) -> None:
    released = 3 ^ RELEASED_MASK
    writes = incarnation() + slot(3)
    for value in (released, released ^ 0xFF, released):  # released, 0x92, released
        writes += mark(3, RELEASED_AT, value)
    writes += mark(3, DONE_AT, 3 ^ 0xAA)
    assert entered(tmp_path, writes) == [("publication", INCARNATION, 3), ("again", INCARNATION, 3)]


def test_a_release_whose_taking_back_is_cut_is_a_publication_again(tmp_path: Path) -> None:
    """An incomplete write leaves an invalid value in the release mark. An invalid mark does not
    count as a release, so the board publishes again. If the publication was already complete, the
    invalid mark changes nothing.
    """
    released, done = mark(3, RELEASED_AT, 3 ^ RELEASED_MASK), mark(3, DONE_AT, 3 ^ 0xAA)
    torn = mark(3, RELEASED_AT, 0x5E)
    writes = incarnation() + slot(3) + released
    assert entered(below(tmp_path, "a"), writes + torn)[1:2] == [("again", INCARNATION, 3)]
    assert entered(below(tmp_path, "b"), writes + done + torn)[1:] == []


def test_a_slot_in_the_middle_of_a_write_may_pass_its_check_and_is_no_publication(
    tmp_path: Path,
) -> None:
    """On a busy machine, the rig may see a slot before the simulated board has written it
    completely. The CRC of twelve erased bytes is 0x47D8, so the incomplete slot passes its check.
    """
    erased = [(SLOTS_AT + 13, 0xD8), (SLOTS_AT + 12, 0x47)]
    whole = [*enumerate(sealed((1).to_bytes(4) + SOURCE), SLOTS_AT)]
    history, board = History(tmp_path / "history.jsonl"), SimulatedBoard(tmp_path / "board")
    board.directory.mkdir()
    watch = LedgerWatch("uno-1", board, history, interval_record(200), bundled=False)
    board.adc_log.write_text("0 1000 start power-on\n1 1001 0 2500000\n")
    for writes in (incarnation(), erased, reversed(whole)):
        with board.eeprom_log.open("a") as log:
            log.writelines(f"9 {address:03x} {value:02x} 0\n" for address, value in writes)
        watch.look()
        watch.look()  # nothing was written since
    history.close()
    published = [e.data["sequence"] for e in read(history.path) if e.event == "publication"]
    assert published == [1]


@pytest.mark.parametrize(("swapped", "held"), [(False, "waiting"), (True, "left")])
def test_publications_on_a_board_at_the_end_wait_or_remain(
    tmp_path: Path, swapped: bool, held: str
) -> None:
    """Publication 2 has its PUBREC, so it belongs to the gateway, and the rig counts it neither as
    waiting nor as remaining.
    """
    writes = incarnation() + slot(1) + slot(2) + mark(2, RELEASED_AT, 2 ^ RELEASED_MASK)
    seen = [
        ("publication", INCARNATION, 1),
        ("publication", INCARNATION, 2),
        (held, INCARNATION, 1),
    ]
    assert entered(tmp_path, writes, swapped=swapped) == seen


def test_publications_of_a_board_that_met_no_gateway_are_entered(tmp_path: Path) -> None:
    """A new board gets its incarnation from a gateway. Until then, its publications have
    incarnation 0. swapped: the board is replaced by another one, so its publications count as left
    behind.
    """
    (tmp_path / "swapped").mkdir()
    assert entered(tmp_path, slot(1)) == [("publication", 0, 1), ("waiting", 0, 1)]
    assert entered(tmp_path / "swapped", slot(1), swapped=True) == [
        ("publication", 0, 1),
        ("left", 0, 1),
    ]


def test_a_command_is_obeyed_when_the_interval_is_another_one_and_whole(tmp_path: Path) -> None:
    cells: Writes = []
    for number, unit in ((201, b""), (1, b"\1"), (202, b""), (2, b"\2")):  # ms, s, ms, min
        told = number.to_bytes(2)
        record = told + sealed(told + unit)[-2:]
        # from the last byte to the first, as the board does
        cells += reversed(list(enumerate(record, 0x020)))
    events = witnessed(tmp_path, incarnation() + cells)
    assert [event.data["interval"] for event in events if event.event == "obeyed"] == [
        201,
        1000,
        202,
        120_000,
    ]


def command(interval: int) -> Writes:
    # from the last byte to the first, as the board does
    return list(reversed(list(enumerate(interval_record(interval), 0x020))))


def held(count: int, identifier: int) -> Writes:
    record = sealed(bytes((count,)) + identifier.to_bytes(2))
    return list(reversed(list(enumerate(record, 0x038 if count & 1 else 0x030))))


def contradictions(folder: Path, writes: Writes) -> list[str]:
    events = witnessed(folder, incarnation() + writes)
    return [event.data["text"] for event in events if event.event == "contradiction"]


@pytest.mark.parametrize(("each", "wrong"), [(2, False), (4, True)])
def test_marks_that_are_written_too_often_are_a_contradiction(
    tmp_path: Path, each: int, wrong: bool
) -> None:
    writes: Writes = []
    for sequence in range(1, 21):
        done, released = sequence ^ 0xAA, sequence ^ RELEASED_MASK
        before = mark(sequence, RELEASED_AT, released ^ 0xFF) + mark(sequence, DONE_AT, done ^ 0xFF)
        writes += (before if each == 4 else []) + slot(sequence)
        writes += mark(sequence, RELEASED_AT, released) + mark(sequence, DONE_AT, done)
    told = [text for text in contradictions(tmp_path, writes) if "marks" in text]
    assert told == ["80 marks written for 20 publications: each write wears the EEPROM"] * wrong


def test_a_message_that_is_taken_twice_is_a_contradiction(tmp_path: Path) -> None:
    """The board accepts one message twice. The second time changes no setting, so only the recorded
    identifiers show the repetition.
    """
    told = contradictions(tmp_path, command(201) + held(1, 7) + held(2, 7) + held(3, 0))
    assert told == ["the message with the identifier 7 was accepted twice"]


@pytest.mark.parametrize(
    "between",
    [
        held(2, 0),
        held(2, 8),
        held(2, 0)[:-1],  # a worn cell has not stored the release
    ],
)
def test_an_identifier_may_come_again_after_its_release(tmp_path: Path, between: Writes) -> None:
    assert not contradictions(tmp_path, command(201) + held(1, 7) + between + held(3, 7))


def test_commands_that_were_never_held_did_not_come_at_qos_2(tmp_path: Path) -> None:
    told = contradictions(tmp_path, command(201) + command(202))
    assert told == ["2 commands obeyed, and 0 messages accepted at QoS 2"]


def test_a_command_under_way_at_the_end_is_not_held_yet(tmp_path: Path) -> None:
    assert not contradictions(tmp_path, command(201) + held(1, 7) + held(2, 0) + command(202))


@pytest.mark.parametrize(
    ("ms", "start", "shipped", "told"),
    [
        ((0, 100, 300, 520, 700), None, True, []),  # samples are late, but none is missing
        (
            (0, 200, 600, 800),
            None,
            True,
            [
                "no sample for 400 ms at an interval of 200 ms",
                "sample 2 came 600 ms after sample 0, not 400 ms after it",
            ],
        ),
        ((0, 200, 600, 800), 400, True, []),  # the board was off
        ((0, 200, 600, 800), None, False, []),
        (
            tuple(range(0, 6000, 208)),  # 4 % too seldom
            None,
            True,
            ["sample 22 came 4576 ms after sample 0, not 4400 ms after it"],
        ),
        (
            tuple(range(0, 6000, 192)),
            None,
            True,
            ["sample 22 came 4224 ms after sample 0, not 4400 ms after it"],
        ),
        ((*range(0, 2000, 208), *range(2200, 4000, 208)), 2100, True, []),  # a start between
        ((450, 490, 530, *range(600, 4000, 200)), None, True, []),  # a start that took long
    ],
)
def test_a_sample_that_is_left_out_is_a_contradiction(
    tmp_path: Path, ms: tuple[int, ...], start: int | None, shipped: bool, told: list[str]
) -> None:
    history = History(tmp_path / "history.jsonl")
    board = SimulatedBoard(tmp_path / "board")
    board.directory.mkdir()
    board.eeprom_image.write_bytes(ERASED)
    board.eeprom_log.touch()
    lines = [(at, f"{at * 16_000} {at} 0 2500000\n") for at in ms]
    lines += [(at, f"{at * 16_000} {at} start power-on\n") for at in (-1, start) if at is not None]
    board.adc_log.write_text("".join(line for _, line in sorted(lines)))
    witness = LedgerWatch("uno-1", board, history, interval_record(200), bundled=shipped)
    witness.close()
    history.close()
    assert [event.data["text"] for event in read(history.path) if "text" in event.data] == told
