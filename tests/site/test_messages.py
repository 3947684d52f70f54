"""Frames between members: each message survives encoding and decoding, and other frames are
refused.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.site.errors import SiteError
from gateway.site.rules.messages import (
    ENTRIES,
    FRAME_BYTES,
    MAX_EPOCH,
    PART_BYTES,
    Answer,
    Ask,
    Beat,
    End,
    Ended,
    Endings,
    Give,
    Got,
    Kind,
    Message,
    Names,
    Over,
    Part,
    Query,
    Reply,
    State,
    Take,
    Wanted,
    decode,
    encode,
    portions,
)

clients = st.text(max_size=20)
small = st.integers(0, 0xFFFF)
large = st.integers(0, MAX_EPOCH - 1)


def lists(entry: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(entry, max_size=4).map(tuple)


replies = st.one_of(
    st.sampled_from((Reply(Kind.NO), Reply(Kind.BUSY), Reply(Kind.RELEASED))),
    st.builds(
        Reply,
        st.just(Kind.CLAIM),
        large,
        st.booleans(),
        st.booleans(),
        st.integers(0, 16),
        small,
        st.booleans(),
        st.booleans(),
    ),
)
parts = st.builds(
    lambda client, epoch, part, more, *rest: Part(client, epoch, part, part + more, *rest),
    clients,
    large,
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.binary(max_size=30),
    st.booleans(),
)
messages = st.one_of(
    st.builds(Names, st.lists(clients, max_size=16).map(tuple)),
    st.builds(Beat, large, large),
    st.builds(Ask, st.integers(0, 2**32 - 1), lists(st.builds(Query, clients, small))),
    st.builds(Answer, st.integers(0, 2**32 - 1), small, lists(replies)),
    st.builds(Take, lists(st.builds(Wanted, clients, large, small))),
    st.builds(Give, lists(parts)),
    st.builds(Got),
    st.builds(End, lists(st.builds(Over, clients, large, small, st.booleans()))),
    st.builds(Endings, lists(st.builds(Ended, clients, large, st.sampled_from(State), large))),
)


@given(messages)
def test_sent_messages_are_decoded_again(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_frame_too_short_or_too_long_is_refused(message: Message, data: st.DataObject) -> None:
    frame = encode(message)
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    for wrong in (cut, frame + b"\0"):
        with pytest.raises(SiteError):
            decode(wrong)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(frame: bytes) -> None:
    try:
        message = decode(frame)
    except SiteError:
        return
    assert encode(message) == frame


@given(messages, st.data())
def test_a_damaged_frame_is_a_message_or_refused(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(frame))
    except SiteError:
        return


def test_an_impossible_list_is_refused_before_it_is_made() -> None:
    ask = b"\x03\0\0\0\1"
    for count in (ENTRIES + 1, 1000):
        with pytest.raises(SiteError, match=r"list of .* entries"):
            decode(ask + count.to_bytes(2) + b"\0" * 100)


def test_a_part_and_a_frame_have_bounds() -> None:
    with pytest.raises(SiteError, match="part"):
        decode(encode(Give((Part("c", 1, 0, 1, bytes(PART_BYTES + 1)),))))
    with pytest.raises(SiteError, match="a frame of"):
        decode(bytes(FRAME_BYTES + 1))


def test_an_epoch_that_a_store_cannot_keep_is_refused() -> None:
    for message in (
        Answer(1, 0, (Reply(Kind.CLAIM, MAX_EPOCH),)),
        End((Over("c", MAX_EPOCH),)),
        Endings((Ended("c", 1, State.HELD, MAX_EPOCH),)),
    ):
        with pytest.raises(SiteError, match=r"cannot be read|impossible|invalid"):
            decode(encode(message))


def test_many_entries_go_in_several_frames_that_fit() -> None:
    questions = [Query(f"{number:0200}") for number in range(20_000)]
    split = list(portions(questions))
    assert [one for portion in split for one in portion] == questions
    assert all(len(encode(Ask(0, portion))) <= FRAME_BYTES for portion in split)
    assert all(len(portion) <= ENTRIES for portion in portions([Reply(Kind.NO)] * 50_000))
