"""With `copies = 2`, acknowledgements wait until the rows of the spool are on two disks."""

from collections.abc import Sequence

import pytest

from gateway.broker.store_rows import SpoolRow
from gateway.mqtt.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.reason import ReasonCode
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.replicated import Replicated
from tests.broker.harness import FOREVER, Client, World


class Copied:
    """A world whose spool rows need a second disk. told: ids of the rows for that disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[int] = []
        self.start()

    def start(self) -> None:
        broker = self.world.broker
        last = broker.spool.next - 1
        self.replicated = site_of(broker).second_disk = Replicated(self._take, last)

    def _take(self, rows: Sequence[SpoolRow]) -> None:
        self.told += [row[0] for row in rows]

    def safe(self, row: int) -> None:
        self.world.engine.commits.spool_is_safe(row)
        self.world.turn()


@pytest.fixture
def copied() -> Copied:
    return Copied(World(moves=True))


def answers(client: Client) -> list[object]:
    found: list[object] = list(client.received)
    client.received.clear()
    return found


def test_an_acknowledgement_waits_for_the_second_disk(copied: Copied) -> None:
    client = copied.world.accepted()
    one = client.publish("spool/x", "1", 1)
    two = client.publish("spool/x", "2", 2)
    assert (answers(client), copied.told) == ([], [1, 2])
    copied.safe(1)
    assert answers(client) == [Puback(one)]
    copied.safe(2)
    assert answers(client) == [Pubrec(two)]


@pytest.mark.mqtt("MQTT-4.6.0-2")
def test_acknowledgements_keep_their_order_and_others_wait_for_one_disk(copied: Copied) -> None:
    client, other = copied.world.accepted("c"), copied.world.accepted("d")
    client.send(Subscribe(7, [Subscription("x", 0)]))
    assert answers(client) == [Suback(7, [0])]
    client.publish("spool/x", "1", 1)
    client.publish("elsewhere", "2", 1)
    client.send(Subscribe(8, [Subscription("y", 0)]))
    other.publish("elsewhere", "3", 1)
    assert answers(other) == [Puback(1)], "it is no part of the spool"
    assert answers(client) == [Suback(8, [0])]
    copied.safe(1)
    assert answers(client) == [Puback(1), Puback(2)]


def test_client_that_waits_for_the_second_disk_gets_messages(copied: Copied) -> None:
    """For example, a board gets commands while its readings wait."""
    client, other = copied.world.accepted("c"), copied.world.accepted("d")
    client.send(Subscribe(7, [Subscription("commands/c", 1)]))
    answers(client)
    client.publish("spool/x", "1", 1)
    other.publish("commands/c", "go", 1)
    (message,) = answers(client)
    assert isinstance(message, Publish)
    assert message.payload == b"go"


def test_refusals_that_wait_count_as_in_flight(copied: Copied) -> None:
    """If they did not count, clients could fill the memory with refused messages."""
    client = copied.world.accepted()
    client.publish("spool/x", "1", 1)
    copied.replicated.refusing = True
    for number in range(2, 1030):
        client.send(Publish("spool/x", b"m", 1, number))
    (goodbye,) = answers(client)
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_refusals_that_have_left_are_in_flight_no_more(copied: Copied) -> None:
    client = copied.world.accepted()
    copied.replicated.refusing = True
    for number in range(1, 3000):
        client.send(Publish("spool/x", b"m", 1, number))
    assert len(answers(client)) == 2999


def test_own_disk_must_have_the_row_too(copied: Copied) -> None:
    client = copied.world.accepted()
    copied.world.slow_disk = True
    client.publish("spool/x", "1", 1)
    copied.safe(1)
    assert answers(client) == []
    assert copied.told == []
    copied.world.commit()
    assert answers(client) == []
    copied.safe(1)
    assert answers(client) == [Puback(1)]


def test_a_repeated_publish_is_not_answered_before_the_first_one_is_safe(copied: Copied) -> None:
    client = copied.world.accepted("c", clean=False, properties=FOREVER)
    client.publish("spool/x", "1", 2, 9)
    client.drop()
    client = copied.world.accepted("c", clean=False, properties=FOREVER)
    client.send(Publish("spool/x", b"1", 2, 9, dup=True))
    assert answers(client) == []
    copied.safe(1)
    assert answers(client) == [Pubrec(9)]
    client.send(Pubrel(9))
    assert answers(client) == [Pubcomp(9)]


def test_after_a_power_cut_nothing_is_known_to_be_safe(copied: Copied) -> None:
    client = copied.world.accepted("c", clean=False, properties=FOREVER)
    client.publish("spool/x", "1", 2, 9)
    copied.world.power_cut()
    copied.start()
    client = copied.world.accepted("c", clean=False, properties=FOREVER)
    client.send(Publish("spool/x", b"1", 2, 9, dup=True))
    assert answers(client) == []
    copied.safe(1)
    assert answers(client) == [Pubrec(9)]
    assert copied.world.rows("SELECT id FROM spool") == [(1,)]


def test_without_a_second_disk_new_publications_are_refused(copied: Copied) -> None:
    client = copied.world.accepted()
    client.publish("spool/x", "1", 1)
    copied.replicated.refusing = True
    client.publish("spool/x", "2", 1)
    client.publish("spool/x", "3", 0)
    client.send(Pingreq())
    assert answers(client) == [Pingresp()], "refusals keep their place, and pings do not wait"
    assert copied.world.rows("SELECT payload FROM spool") == [(b"1",), (b"3",)]
    copied.safe(2)
    first, second = answers(client)
    assert (first, second.reason) == (Puback(1), ReasonCode.QUOTA_EXCEEDED)  # type: ignore[attr-defined]
