"""No nonce is used twice with one key, whatever is lost, cut or restored. If one were, AES-CCM
would reveal the plaintext, and frames could be forged (RFC 3610, section 5).

Board and gateway seal frames over bad air. The ledger of `world.py` records key, direction and
counter of each frame. It allows the same three again only for the same frame, byte for byte.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.links.lora.world import SEEDS, Ledger, World


@dataclass
class Backup:
    """Stored state of a gateway at some time."""

    session_present: bool
    held: set[int]
    marks: set[int]


def backup(world: World) -> Backup:
    gateway = world.gateway
    return Backup(gateway.session_present, {*gateway.held}, {*gateway.marks})


def restore(world: World, old: Backup) -> None:
    """Restore an old state of the gateway. The gateway has then forgotten readings and accepts them
    again, but this test checks only nonces.
    """
    gateway = world.gateway
    gateway.session_present = old.session_present
    gateway.held, gateway.marks = {*old.held}, {*old.marks}
    gateway.start()


def set_back(world: World) -> None:
    """Lower the count of starts in the board's EEPROM, as if a user had written an old image there,
    and start the board.
    """
    world.board.boot = max(0, world.board.boot - world.random.randint(1, 5))
    world.board.start(world.now)


def lose_memory(world: World) -> None:
    world.board.lose_memory()
    world.board.start(world.now)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_campaign_of_cuts_losses_and_restores_uses_none_twice(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "check", lambda ledger: None)  # this test does not check readings
    world = World(900 + seed)
    world.lost, world.doubled, world.late, world.replayed = 0.1, 0.1, 0.05, 0.2
    old = backup(world)
    harms: list[Callable[[], None]] = [
        world.cut_board,
        world.cut_gateway,
        lambda: lose_memory(world),
        lambda: set_back(world),
        lambda: restore(world, old),
    ]
    struck: Counter[int] = Counter()
    for number in range(120):
        world.board.sample()
        world.run(world.random.choice((0.05, 0.3, 1.0, 3.0, 20.0, 60.0)))
        if number % 3 == 2:
            harm = world.random.randrange(len(harms))
            struck[harm] += 1
            harms[harm]()
        if number % 25 == 24:
            old = backup(world)
    world.run(600.0)
    assert len(struck) == len(harms)
    assert len({key for key, _, _ in world.ledger.nonces}) > 10
    assert len(world.ledger.nonces) > 150
