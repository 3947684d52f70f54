"""A rolling upgrade of all members with 1,000 clients that hop, on virtual time."""

from collections.abc import Sequence
from functools import partial
from random import Random

from gateway.site.rules.contacts import RESTART_S
from tests.site.sim_client import Client
from tests.site.world import World

CLIENTS = 1000
HOPPING = 100
"""Number of clients of the other members that hop at the same time."""


def hop(world: World, clients: Sequence[Client], names: Sequence[str]) -> None:
    for client in clients:
        name = world.random.choice(names)
        world.after(world.random.random(), partial(client.connect, name))
    world.run(RESTART_S)
    assert [client.name for client in world.clients if not client.accepted] == []
    for client in world.clients:
        client.publish()
    world.run(0.5)


def test_rolling_upgrade_of_all_members_loses_no_session() -> None:
    world = World(Random(39), clients=CLIENTS)
    world.check = lambda changed: None  # type: ignore[method-assign] # looks at all, each time
    world.patience = RESTART_S

    def start(name: str) -> None:
        world.start(name)
        world.gateways[name].holder.part_bytes = 1000

    for gateway in world.gateways.values():
        gateway.holder.part_bytes = 1000
    world.run(4.0)
    hop(world, world.clients, world.names)
    sessions = [client.session for client in world.clients]
    for name in world.names:
        here = world.gateways[name].connections.keys()
        away = [client for client in world.clients if client.name in here]
        stay = [client for client in world.clients if client.name not in here]
        assert len(away) > HOPPING
        world.crash(name, stopped=True)
        world.after(4.0, partial(start, name))
        elsewhere = [other for other in world.names if other != name]
        hop(world, [*away, *world.random.sample(stay, HOPPING)], elsewhere)
    assert [client.session for client in world.clients] == sessions
    assert not any(client.marked for client in world.clients)
    assert world.reached["doubt"] == world.reached["silent"] == 0
