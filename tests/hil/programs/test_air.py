"""For each frame in the air, the rig finds the board of this run to which the frame belongs, and
the radios that heard it.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hil.bench.bench import Bench
from hil.programs.air import AirOfRun

LORA_1, LORA_2 = "lora-1", "lora-2"
MODEM = "gateway"
OURS, ANOTHER = "07", "08"
NUMBER_1, NUMBER_2, NUMBER_9 = "01", "02", "09"
SITE = [{"name": "attic"}, {"name": "barn"}]


class Air:
    """The simulated air, and its output. told: events of the history. fed: input of the boards'
    taps.
    """

    def __init__(self, **bench: object) -> None:
        self.told: list[dict[str, Any]] = []
        self.fed: list[tuple[str, str, list[str]]] = []
        history = cast(Any, SimpleNamespace(add=self._add))
        none = cast(Any, None)
        made = Bench.model_validate({"title": "t", "air": {"network": 7}, **bench})
        assert made.air is not None
        self.air = AirOfRun(made, made.air, none, none, history)
        for name in (LORA_1, LORA_2):
            self.air._taps[name] = cast(Any, SimpleNamespace(feed=self._feeder(name)))

    def _add(self, hop: str, event: str, t: int = 5, **data: Any) -> None:
        assert (hop, t) == ("air", 5)
        self.told.append({"event": event, **data})

    def _feeder(self, name: str) -> Any:
        def feed(sender: str, frame: bytes, heard: list[str], now: int) -> None:
            self.fed.append((name, sender, heard))

        return feed

    def enter(self, sender: str, number: str, to: list[str], network: str = OURS) -> None:
        frame = network + number + "00" * 8
        self.air.enter({"from": sender, "to": to, "frame": frame, "t": 5})


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
    air = Air()
    air.enter(sender, number, [], network)
    assert all(one["event"] == "strange" for one in air.told)
    assert [(one["line"], one["direction"]) for one in air.told] == strange
    assert [name for name, *_ in air.fed] == ([] if strange else [f"lora-{int(number)}"])


def test_modems_are_called_after_their_gateways() -> None:
    air = Air(gateway=SITE)
    air.enter(LORA_1, NUMBER_1, ["gateway-attic", "gateway-barn", LORA_2])
    air.enter("gateway-barn", NUMBER_1, [LORA_1])
    assert air.fed == [
        (LORA_1, LORA_1, ["attic", "barn", LORA_2]),
        (LORA_1, "barn", [LORA_1]),
    ]
    assert not air.told


def test_frames_at_several_gateways_are_counted_per_board() -> None:
    air = Air(gateway=SITE)
    both = ["gateway-attic", "gateway-barn"]
    air.enter(LORA_1, NUMBER_1, both)
    air.enter(LORA_1, NUMBER_1, [*both, LORA_2])
    air.enter(LORA_1, NUMBER_1, both[:1])
    air.enter(LORA_2, NUMBER_2, [LORA_1, both[1]])
    for name in (LORA_1, LORA_2, both[0]):
        air.air.take("radio", {"line": name, "sent": 4})
    assert [radio.get("shared") for radio in air.told] == [2, 0, None]


def test_single_gateway_shares_no_frame() -> None:
    air = Air()
    air.air.take("radio", {"line": LORA_1, "sent": 4})
    assert air.told == [{"event": "radio", "line": LORA_1, "sent": 4}]
