"""Packet identifiers between PUBLISH and PUBREL, as the store keeps them: each takes a few bytes,
however many there are.
"""

from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.delivery import NeededRows
from gateway.broker.ledger import Ledger
from gateway.broker.marks import Mark
from gateway.broker.receive_flow import ReceiveFlow
from gateway.config.sections import LimitsSection
from gateway.mqtt.encode import encode
from gateway.mqtt.message_ids import unpack_set
from gateway.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World

V4 = Version.V3_1_1
some = st.builds(
    lambda first, count, step: tuple(range(first, 0x10000, step))[:count],
    st.integers(1, 0xFFFF),
    st.integers(1, 300),
    st.sampled_from([1, 2, 7, 8, 500]),
)
"""Identifiers in steps of equal size."""


@given(st.lists(st.tuples(st.booleans(), some), max_size=8))
def test_stored_flow_is_restored(steps: list[tuple[bool, tuple[int, ...]]]) -> None:
    ledger = Ledger(0, LimitsSection(), NeededRows(1, {}))
    flow, kept = ReceiveFlow(ledger), set[int]()
    for forget, identifiers in steps:
        if forget:
            assert len(flow.release(identifiers)) == len(set(identifiers) - kept)
            kept -= set(identifiers)
        else:
            flow.keep(tuple(set(identifiers) - kept))
            kept |= set(identifiers)
        assert ledger.received == len(kept)
        row = flow.row()
        assert set(unpack_set(row)) == kept
        assert len(row) <= (2 * len(kept) if len(kept) <= 128 else (1 << 13) + 4)
        assert len(row) % 2 == 0
        again = ReceiveFlow(Ledger(0, LimitsSection(), NeededRows(1, {})))
        again.restore(row)
        assert (again.received.keys(), again.outstanding) == (kept, 0)


def new_flow() -> ReceiveFlow:
    return ReceiveFlow(Ledger(0, LimitsSection(), NeededRows(1, {})))


def test_identifiers_of_an_earlier_connection_count_after_their_publish_has_come_again() -> None:
    flow = new_flow()
    flow.keep((1, 2, 3))
    assert flow.outstanding == 3
    flow.suspend()
    assert flow.outstanding == 0
    flow.repeat(1)
    flow.repeat(1)
    flow.repeat(9)  # identifier 9 is only in the anti-replay window
    assert flow.outstanding == 1
    assert flow.release((1, 2, 9)) == [2]
    assert (flow.outstanding, list(flow.received)) == (0, [3])
    flow.keep((4,))
    flow.unacknowledged = 2
    assert flow.outstanding == 3
    flow.suspend()
    flow.drop()
    assert (flow.outstanding, flow.received) == (0, {})


def test_another_mark_forgets_identifiers_and_waits_for_its_own_commit() -> None:
    flow, mark, other = new_flow(), Mark("b", 0, 7), Mark("b", 1, 8)
    mark.add(5)
    mark.commit, other.commit = 4, 3
    flow.keep((1,))
    assert flow.use_mark(mark) is True
    assert (flow.mark, flow.received, flow.commit, flow.row()) == (mark, {}, 4, b"")
    assert flow.is_duplicate((5,), 5) is True
    assert flow.is_duplicate((6,), 6) is False
    flow.keep((6,))
    assert flow.use_mark(mark) is False
    assert flow.received == {6: True}
    assert flow.use_mark(other) is True
    assert (flow.received, flow.commit) == ({}, 4)
    assert flow.use_mark(None) is True


def test_a_publication_without_a_mark_is_a_duplicate_by_its_identifier() -> None:
    flow = new_flow()
    flow.keep((1, 2))
    given = [(1,), (3, 2), (3, 3), (3, 4), (3,)]
    assert [flow.is_duplicate(one, 0) for one in given] == [True, True, True, False, False]


def test_identifiers_that_a_journal_cannot_have_beside_the_new_one_are_forgotten() -> None:
    flow = new_flow()
    apart = [100, 36, 37, 163, 164, 1, 65_530, 40_000]
    flow.keep(tuple(apart))
    flow.outdate(100)
    assert sorted(flow.received) == [37, 163], "fewer than 64 before or behind it"
    flow.outdate(110)
    assert sorted(flow.received) == [163]


def test_the_row_is_short_whether_there_are_few_identifiers_or_many() -> None:
    dense, wide = new_flow(), new_flow()
    dense.keep(tuple(range(1, 400)))
    dense.release((1,))
    assert len(dense.row()) < 100, "as bits"
    wide.keep(tuple(range(1, 0x10000, 500)))
    assert len(wide.received) == 132
    wide.release((1, 501, 1001, 1501))
    assert len(wide.row()) == 2 * 128, "as a list"
    for count in (128, 129):
        wide = new_flow()
        wide.keep(tuple(range(1, 500 * count, 500)))
        assert (len(wide.row()) == 2 * count) is (count == 128)


def test_a_hoard_of_identifiers_costs_few_bytes_a_message() -> None:
    """Clients of versions before MQTT 5 may have 65,535 messages between PUBLISH and PUBREL at the
    same time. If the gateway stored a plain list of identifiers, it would write 128 kB for each
    message.
    """
    world = World()
    hoarder = world.durable("hoarder", version=V4, properties=None)
    hoarder.deaf = True
    numbers = range(1, 0xFFFF, 2)
    hoarder.send_bytes(b"".join(encode(Publish("t", b"", 2, number), V4) for number in numbers))
    world.commit()
    ((stored,),) = world.rows("SELECT received FROM flow")
    assert set(unpack_set(stored)) == set(numbers)
    assert len(stored) <= 8196
    world.power_cut()
    hoarder = world.durable("hoarder", version=V4, properties=None)
    hoarder.send(Publish("t", b"again", 2, 7), Pubrel(7), Pubrel(8), Publish("t", b"new", 2, 7))
    assert hoarder.take_all() == [
        Pubrec(7),
        Pubcomp(7),
        Pubcomp(8, R.SUCCESS),
        Pubrec(7),
    ]


def test_the_identifiers_of_all_sessions_have_a_bound_and_each_session_may_have_some() -> None:
    world = World(memory_bytes=8 * 80 * 100)  # room for a hundred identifiers
    hoarder, other = world.durable("hoarder"), world.durable("other")
    old = world.durable("old", version=V4, properties=None)
    hoarder.send(*(Publish("t", b"", 2, number) for number in range(1, 111)))
    reasons = [item.reason for item in hoarder.take_all(Pubrec)]
    assert reasons == [R.SUCCESS] * 100 + [R.QUOTA_EXCEEDED] * 10
    other.send(*(Publish("t", b"", 2, number) for number in range(1, 21)))
    reasons = [item.reason for item in other.take_all(Pubrec)]
    assert reasons == [R.SUCCESS] * 16 + [R.QUOTA_EXCEEDED] * 4
    old.send(*(Publish("t", b"", 2, number) for number in range(1, 17)))
    assert len(old.take_all(Pubrec)) == 16
    old.send(Publish("t", b"", 2, 17))
    assert old.closed, "there is no other way to refuse before MQTT 5"
    world.power_cut()
    assert world.broker.received == 132
    hoarder = world.durable("hoarder")
    hoarder.send(Pubrel(1), Publish("t", b"", 2, 200))
    assert hoarder.take_all() == [Pubcomp(1), Pubrec(200, R.QUOTA_EXCEEDED)]
    world.accepted("other", clean=True)
    world.accepted("old", clean=True)
    assert world.broker.received == 99
    hoarder.send(Publish("t", b"", 2, 200))
    assert hoarder.take_all() == [Pubrec(200)]
