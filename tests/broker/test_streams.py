"""Random bytes and damaged packets cause no exception, and it makes no difference in which pieces
they arrive. tests/broker/fuzz.py tries a million of them.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt.packets import Version
from tests.broker.harness import World
from tests.broker.streams import PACKETS, Manner, feed


@st.composite
def damaged(draw: st.DrawFn, version: Version) -> bytes:
    """Return a few packets with some bytes changed, inserted or removed."""
    data = bytearray(
        b"".join(
            draw(
                st.lists(
                    st.one_of(st.sampled_from(PACKETS[version]), st.binary(max_size=6)), max_size=5
                )
            )
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


VERSIONS = st.sampled_from(list(Version))


@settings(max_examples=200, deadline=None)
@given(st.data(), VERSIONS, st.booleans())
def test_the_pieces_that_bytes_come_in_make_no_difference(
    data: st.DataObject, version: Version, kept: bool
) -> None:
    """The broker gets the same bytes once whole and once byte by byte, and each time commits only
    at the end. With a commit in between, a client whose connection then ends could get an answer in
    one case only.
    """
    stream = data.draw(damaged(version))
    whole = feed(World(), stream, Manner(version, True, kept, singly=False, slow=True))
    assert feed(World(), stream, Manner(version, True, kept, singly=True, slow=True)) == whole


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 255))
def test_no_exception_escapes_and_the_broker_continues(data: st.DataObject, number: int) -> None:
    world, manner = World(), Manner.of(number)
    feed(world, data.draw(damaged(manner.version)), manner)
    probe = world.accepted("probe")
    probe.subscribe("probe")
    probe.publish("probe", b"served", 1)
    assert probe.payloads == [b"served"]
