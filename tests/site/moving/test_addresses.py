"""Messages between gateways of a site about session moves, encoded as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.publish_run import NOTICES
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MalformedPacket
from gateway.mqtt.packets import Publish, Version
from gateway.mqtt.properties import SERVER_PUBLISH_PROPERTIES, PropertyId, decode_properties
from gateway.mqtt.wire import MAX_VARINT, Reader, encode_varint
from gateway.site.moving.addresses import (
    ADDRESS_BYTES,
    AT_ONCE,
    NOTICE_BYTES,
    Address,
    Kind,
    Notice,
    Stage,
    address,
    encode_notices,
    new_moving_id,
    read_address,
    read_notices,
    share_number,
)
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS

stages = st.builds(Stage, st.integers(1, MOVING_IDS - 1), st.integers(1, MOST_MOVES))


@given(stages, st.sampled_from(["", "$share/g/t", "$share/other/#"]))
def test_an_address_comes_as_it_was_sent(stage: Stage, share: str) -> None:
    properties = address(stage, share)
    assert len(properties) < ADDRESS_BYTES
    found = decode_properties(
        Reader(encode_varint(len(properties)) + properties, "PUBLISH"), SERVER_PUBLISH_PROPERTIES
    )
    identifiers = found[PropertyId.SUBSCRIPTION_IDENTIFIER]
    assert read_address(identifiers) == Address(stage, share_number(share))


@given(st.lists(st.integers(1, MAX_VARINT), max_size=6))
def test_identifiers_of_a_mad_member_are_an_address_or_refused(identifiers: list[int]) -> None:
    try:
        found = read_address(identifiers)
    except MalformedPacket:
        return
    if len(identifiers) < 2:
        assert found is None
    else:
        assert found is not None
        assert 0 <= found.stage.moving_id < MOVING_IDS


@given(st.sampled_from(Kind), st.lists(stages, max_size=AT_ONCE))
def test_notices_come_as_they_were_sent(kind: Kind, said: list[Stage]) -> None:
    payload = encode_notices(kind, said)
    assert list(read_notices(payload)) == [Notice(kind, stage) for stage in said]
    assert len(encode(Publish(NOTICES, payload, 1, 1), Version.V5)) < NOTICE_BYTES


@given(st.binary(max_size=600))
def test_notices_of_a_mad_member_are_read_or_refused(payload: bytes) -> None:
    try:
        found = list(read_notices(payload))
    except MalformedPacket:
        return
    assert len(found) <= AT_ONCE
    assert b"".join(encode_notices(kind, [stage]) for kind, stage in found) == payload


def test_moving_id_is_drawn_each_time() -> None:
    drawn = {new_moving_id() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 < moving_id < MOVING_IDS for moving_id in drawn)


@pytest.mark.parametrize("count", [2, 5])
def test_impossible_identifiers_are_not_an_address(count: int) -> None:
    with pytest.raises(MalformedPacket):
        read_address([1] * count)
