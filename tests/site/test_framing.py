"""The reader turns arbitrary bytes into frames, or raises one SiteError. It never takes more memory
than one frame needs.
"""

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES, Frames, Kind, pack, pack_number
from gateway.site.links.link import Greeting, Link, State, difference
from gateway.site.pki.authority import Removal, authority_of, membership
from tests.site.members import Site

KINDS = st.sampled_from(Kind)
WORDS = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'[{"name": "a", "until": 1, "signature": ""}]',
    b'{"version": 1}',
]
BODIES = st.binary(max_size=40) | st.sampled_from(WORDS)


@given(st.lists(st.tuples(KINDS, st.binary(max_size=100))), st.integers(1, 20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[Kind, bytes]], size: int
) -> None:
    data = b"".join(pack(kind, body) for kind, body in frames)
    reader, found = Frames(FRAME_BYTES), []
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
        found += reader
    assert found == frames
    reader.feed(pack(Kind.FRAME, b"cut")[:-1])
    assert list(reader) == []


@given(st.lists(st.binary(max_size=50)))
def test_other_bytes_are_refused_or_waited_for(chunks: list[bytes]) -> None:
    reader = Frames(1000)
    try:
        for chunk in chunks:
            reader.feed(chunk)
            for _, body in reader:
                assert len(body) <= 1000
            assert len(reader._bytes) < 1005
    except SiteError:
        pass  # the rest is not read


class _Wire(asyncio.Transport):
    """A stand-in for a TLS connection. certificate: the peer's certificate, or None."""

    def __init__(self, certificate: bytes | None) -> None:
        super().__init__({"ssl_object": self, "peername": ("10.0.0.9", 1)})
        self._certificate = certificate
        self.sent, self.closed = b"", False

    def getpeercert(self, binary_form: bool) -> bytes | None:
        return self._certificate

    def write(self, data: Any) -> None:
        assert not self.closed
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class _Owner:
    def __init__(self) -> None:
        self.joins = self.overs = self.requests = 0

    def admits(self, link: Link) -> None: ...

    def greeting(self) -> Greeting:
        return Greeting(version=1, oldest=1, generation="0", clock=0, removed=[])

    def compare(self, link: Link, greeting: Greeting) -> None:
        difference(self.greeting(), greeting, "a", link.member)

    def joined(self, link: Link) -> None:
        self.joins += 1

    def frame_arrived(self, link: Link, frame: bytes) -> None:
        assert link.state is State.JOINED

    def removed(self, link: Link, removals: Any) -> None:
        assert all(isinstance(item, Removal) for item in removals)

    def asked(self, link: Link, request: bytes) -> None:
        self.requests += 1

    def renews(self, link: Link, data: bytes) -> None:
        assert isinstance(data, bytes)

    def over(self, link: Link, joined: bool) -> None:
        self.overs += 1
        assert link.reason


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    site = Site(tmp_path_factory.mktemp("site"), "attic")
    assert authority_of(site.of("attic"))
    return membership(site.of("attic")).certificate.public_bytes(Encoding.DER)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(KINDS, BODIES), max_size=8),
    st.booleans(),
    st.booleans(),
    st.integers(0, 8),
)
def test_a_link_survives_any_order_of_frames(
    certificate: bytes,
    frames: list[tuple[Kind, bytes]],
    called: bool,
    guest: bool,
    greet_at: int,
) -> None:
    greeting = _Owner().greeting().model_dump_json().encode()
    frames[greet_at:greet_at] = [(Kind.GREETING, greeting), (Kind.ALIVE, b"\0\0\0\1")]

    async def run() -> None:
        owner, wire = _Owner(), _Wire(None if guest and called else certificate)
        link = Link(owner, None if called else "attic")
        link.begin(wire)
        for kind, body in frames:
            link.data_received(pack(kind, body))
        joined = link.state is State.JOINED
        assert (owner.joins, owner.overs) in ((0, 0), (1, 0), (1, 1), (0, 1))
        assert owner.requests <= 1
        link.connection_lost(None)
        assert link.state is State.ENDED
        assert owner.overs == 1
        assert link.settled.done()
        assert link.ended.done()
        assert not (joined and guest and called), "a peer without a certificate never joins"

    asyncio.run(run())


async def test_the_two_sides_are_joined_after_three_frames(certificate: bytes) -> None:
    owner, wire = _Owner(), _Wire(certificate)
    link = Link(owner, None)
    link.begin(wire)
    assert wire.sent == b"", "the one that dialled speaks first"
    link.data_received(pack(Kind.GREETING, owner.greeting().model_dump_json().encode()))
    assert (owner.joins, wire.sent[4]) == (0, Kind.GREETING)
    link.data_received(pack_number(Kind.ALIVE, 7))
    assert owner.joins == 1
    assert wire.sent.endswith(pack_number(Kind.ECHO, 7))
