"""Boards in the page's list: their states, and that the page gets each row that has changed."""

from dataclasses import dataclass, replace
from pathlib import Path

from gateway.boards.admission import Listed
from gateway.boards.bundled_firmware import Kind
from gateway.boards.expected import BoardState, Expected
from gateway.boards.reports import Boards
from gateway.links.lora.status import RadioStatus
from gateway.links.serial_port import PortStatus
from gateway.mirror.last import LastReadings
from gateway.payload.readings import Reading
from gateway.web.board_rows import MOST_AT_ONCE, ROUND, BoardRows
from tests.web.test_air import WELL
from tests.web.test_web import a_port, a_source

NOW = 1_767_225_600_000_000
KINDS = {"uno": Kind("Arduino Uno R3", "cd" * 32)}


@dataclass
class World:
    rows: BoardRows
    readings: LastReadings
    listed: dict[str, Listed]
    ports: list[PortStatus]
    radios: list[RadioStatus]
    expected: Expected

    def changed(self) -> dict[str, dict[str, object]]:
        return {str(row["name"]): row for row in self.rows.changes()[0]}


def world(folder: Path) -> World:
    readings, listed, ports = LastReadings(folder), dict[str, Listed](), list[PortStatus]()
    radios = list[RadioStatus]()
    expected = Expected(folder)
    source = replace(
        a_source(folder),
        ports=lambda: ports,
        boards=Boards(folder),
        radios=lambda: radios,
        expected=expected,
    )
    rows = BoardRows(source, readings, lambda: listed, lambda: KINDS)
    return World(rows, readings, listed, ports, radios, expected)


def reading(value: float, at: int = NOW, status: bool = False, name: str = "adc0") -> Reading:
    return Reading(name, value, "V", at, "synchronised", None, at, status)


def test_board_row_has_each_state(tmp_path: Path) -> None:
    there = world(tmp_path)
    there.listed["off"] = Listed("ready", "uno", "cd" * 32)
    there.listed["gone"] = Listed("revoked", None, None)
    there.listed["new"] = Listed("flashing", "uno", "ab" * 32)
    there.ports.append(replace(a_port("/dev/ttyACM0", True), refused="stranger"))
    found = there.changed()
    assert {name: row["state"] for name, row in found.items()} == {
        "off": "offline",
        "gone": "revoked",
        "new": "flashing",
        "stranger": "pending",
    }
    assert found["stranger"]["place"] == "/dev/ttyACM0"
    assert (found["off"]["kind"], found["off"]["outdated"]) == ("Arduino Uno R3", False)
    assert (found["new"]["firmware"], found["new"]["outdated"]) == ("ab" * 6, True)
    assert there.changed() == {}, "nothing has changed"


def test_problem_is_sent_at_once_even_for_a_board_without_a_state(tmp_path: Path) -> None:
    there = world(tmp_path)
    there.listed["roof-1"] = Listed("ready", "uno", None)
    assert there.changed()["roof-1"]["problem"] is None
    for other in range(2 * ROUND):
        there.listed[f"other-{other}"] = Listed("ready", "uno", None)
    there.changed()
    problem = BoardState("refused", None, None, "roof-1: refused", "Look.")
    there.expected.states = {"roof-1": problem}
    assert there.changed()["roof-1"]["problem"] == "roof-1: refused. Look."
    there.expected.states = {}
    assert there.changed()["roof-1"]["problem"] is None


def test_board_row_is_sent_when_changed_and_removed_when_gone(tmp_path: Path) -> None:
    there = world(tmp_path)
    there.readings.take("roof-1", reading(1.0))
    there.readings.take("roof-1", reading(9.9, NOW + 1, status=True, name="life"))
    (row,) = there.changed().values()
    assert (row["last"], row["seen"]) == (
        {
            "name": "adc0",
            "value": 1.0,
            "unit": "V",
            "time": NOW,
            "quality": "synchronised",
            "time_error_s": None,
        },
        NOW + 1,
    )
    there.rows.touch("roof-1")
    assert there.changed() == {}, "touched, and as before"
    there.readings.take("roof-1", reading(2.0, NOW + 2))
    there.rows.touch("roof-1")
    assert there.changed()["roof-1"]["seen"] == NOW + 2
    there.readings.forget("roof-1")
    assert there.rows.changes() == ([], ["roof-1"])
    assert there.rows.rows == {}


def test_unannounced_change_is_found_within_a_round(tmp_path: Path) -> None:
    there = world(tmp_path)
    for number in range(100):
        there.readings.take(f"roof-{number}", reading(1.0))
    assert len(there.changed()) == 100
    for number in range(100):
        there.readings.take(f"roof-{number}", reading(2.0))
    found: set[str] = set()
    for _ in range(ROUND):
        found |= there.changed().keys()
    assert len(found) == 100


def test_a_board_by_radio_is_distinguished_from_one_on_a_line(tmp_path: Path) -> None:
    there = world(tmp_path)
    there.radios.append(WELL)
    there.listed |= {name: Listed("ready", None, None) for name in ("roof-1", "shed")}
    assert {name: row["radio"] for name, row in there.changed().items()} == {
        "roof-1": True,
        "shed": False,
    }


def test_large_number_of_board_rows_is_built_in_parts(tmp_path: Path) -> None:
    there = world(tmp_path)
    there.listed |= {f"roof-{n}": Listed("ready", None, None) for n in range(2 * MOST_AT_ONCE)}
    found = [len(there.changed()) for _ in range(4)]
    assert max(found) == found[0] == MOST_AT_ONCE
    assert sum(found) == 2 * MOST_AT_ONCE
