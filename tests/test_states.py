"""The states of sessions and links: each change of a state that happens is in the table, and each
change in the table happens. The page shows these tables. `tests/broker/test_state.py` does the same
for the states of connections.
"""

from collections.abc import Callable
from enum import Enum
from random import Random

from gateway.broker.session import Session
from gateway.links import reliable
from gateway.runtime import session_states
from gateway.runtime.session_states import SessionState, state_of
from tests.broker.harness import World
from tests.links.world import World as Line
from tests.states import PAGE, TABLES, Table, page

Changes = set[tuple[Enum | None, Enum]]


def changes(table: Table) -> Changes:
    return {(state, following) for state, some in table.items() for following in some}


def test_the_page_shows_the_tables() -> None:
    assert PAGE.read_text() == page()
    assert len(TABLES) == 4


def test_sessions_change_as_in_the_table() -> None:
    world, seen = World(), Changes()
    states: dict[Session, SessionState] = {}

    def look() -> None:
        states.update(dict.fromkeys(world.broker.by_id.values()) | states)
        for session, before in states.items():
            if (state := state_of(session)) is not before:
                seen.add((before, state))
                states[session] = state

    def take_over() -> None:
        world.accepted("stays", clean=True)

    client = world.durable("stays")
    steps: list[Callable[[], object]] = [
        lambda: world.accepted("goes").drop(),
        client.drop,
        lambda: world.durable("stays"),
        take_over,
        lambda: world.durable("waits").drop(),
        world.power_cut,
        lambda: world.end_session("waits"),
        lambda: world.durable("ends"),
        lambda: world.end_session("ends"),
    ]
    look()
    for step in steps:
        step()
        look()
        world.turn()
        look()
    assert seen == changes(session_states.NEXT)


def test_links_over_a_line_change_as_in_the_table() -> None:
    seen = Changes()
    for seed in range(40):
        random = Random(seed)
        line = Line(random)
        link = line.gateway.link
        before, session = link.state, link.session
        for _ in range(30):
            match random.randrange(8):
                case 0:
                    line.reboot_device()
                case 1:
                    line.gateway.write(random.randbytes(300), line.now)
                    line.gateway.close(line.now, at_once=False)
                case 2:
                    line.gateway.close(line.now, at_once=True)
                case _:
                    line.advance(random.choice((0.001, 0.01, 0.5)))
            if link.state is not before or link.session is not session:
                seen.add((before, link.state))
                before, session = link.state, link.session
    assert seen == changes(reliable.NEXT)
