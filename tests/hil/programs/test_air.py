"""Which board of the run a frame belongs to, and what belongs to none."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hil.bench.tables import AirTable
from hil.programs.air import MODEM, AirOfRun

LORA_1, LORA_2 = "lora-1", "lora-2"
OURS, ANOTHER = "07", "08"
NUMBER_1, NUMBER_2, NUMBER_9 = "01", "02", "09"


@pytest.mark.parametrize(
    ("sender", "network", "number", "strange"),
    [
        (LORA_1, OURS, NUMBER_1, []),
        (MODEM, OURS, NUMBER_2, []),
        (LORA_1, OURS, NUMBER_2, [(LORA_1, "up")]),
        (LORA_1, ANOTHER, NUMBER_1, [(LORA_1, "up")]),
        (MODEM, OURS, NUMBER_9, [("nobody", "down")]),
        (MODEM, ANOTHER, NUMBER_1, [(LORA_1, "down")]),
    ],
)
def test_a_frame_of_another_network_or_of_no_board_is_strange(
    sender: str, network: str, number: str, strange: list[tuple[str, str]]
) -> None:
    told: list[tuple[str, str]] = []

    def add(hop: str, event: str, t: int, **data: Any) -> None:
        assert (hop, t) == ("air", 5)
        told.extend([(data["line"], data["direction"])] * (event == "strange"))

    history = cast(Any, SimpleNamespace(add=add))
    boards = {1: LORA_1, 2: LORA_2}
    air = AirOfRun(AirTable(network=7), boards, 1, cast(Any, None), cast(Any, None), history)
    fed: list[str] = []
    for name in boards.values():
        tap = SimpleNamespace(feed=lambda direction, *_, name=name: fed.append(name))
        air._taps[name] = cast(Any, tap)
    frame = network + number + "00" * 8
    air.enter({"from": sender, "to": [], "frame": frame, "t": 5})
    assert told == strange
    assert fed == ([] if strange else [boards[int(number)]])
