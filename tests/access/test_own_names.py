"""Names and a topic that are reserved for the gateway: no client, board or user of the page may use
them.
"""

import asyncio
from pathlib import Path

import pytest

from gateway.access.authentication import ListenerAccess, Passwords
from gateway.access.identifiers import Identifiers
from gateway.access.peer import Peer
from gateway.access.rules import Acl, SlowCheck
from gateway.access.users import Users, UsersError
from gateway.boards.admission import DeviceAccess, Registry
from gateway.config import DEVICES_TOPIC, INSIDE, AccessSection, AclSection, ListenerSection
from gateway.links.greeter import Refusal
from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Version, Will
from gateway.mqtt.reason import ReasonCode as R
from gateway.web.page_logins import PageLogins
from tests.access.test_access import LISTENER, alice, answer, configured
from tests.access.test_hook import asked, by_command
from tests.service.process import gateway
from tests.service.wire import Wire

OWN = [
    "onceway-inside",
    "onceway-inside-0123456789abcdef",
    "onceway-bridge:cloud",
    "onceway-site:a:b",
]
OTHERS = [
    "onceway",
    "onceway-0123456789abcdef",
    "onceway-insid",
    "Onceway-inside",
    "my-onceway-inside",
]


class Caller:
    """A connection that has not sent CONNECT."""

    def __init__(self, certificate: str | None) -> None:
        self.user: str | None = None
        self.client = ""
        self.is_accepted = False
        self.acl = Acl([])
        self.peer = Peer("10.0.0.1:5", "x", certificate_name=certificate)


class Hook(Passwords):
    """A password check that must not be called."""

    def wrong(self, *arguments: object) -> None:  # type: ignore[override]
        raise AssertionError("the hook was asked")


def refused(
    folder: Path, client: str, user: str | None, certificate: str | None, **section: object
) -> bool:
    passwords = Hook(Users(folder / "users"), AccessSection(url="http://127.0.0.1:1/"))
    names = Identifiers(AccessSection(), lambda name: False, lambda name: False)
    listener = ListenerSection.model_validate({"bind": "127.0.0.1:0"} | section)
    access = ListenerAccess(listener, passwords, names)
    packet = Connect(client, username=user, password=b"right" if user else None)
    found = access.refuses_connect(Caller(certificate), packet)
    assert found is None or isinstance(found, SlowCheck) or found[0] == R.NOT_AUTHORIZED
    return isinstance(found, tuple)


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
@pytest.mark.parametrize("name", OWN)
def test_no_listener_takes_a_name_of_the_gateway(name: str, kind: str, tmp_path: Path) -> None:
    more: dict[str, object] = {"type": kind, "anonymous": True}
    assert refused(tmp_path, name, None, None, **more)
    assert refused(tmp_path, name, "carol", None, **more)
    assert refused(tmp_path, name, None, "carol", **more)
    assert refused(tmp_path, "c", name, None, **more)
    assert refused(tmp_path, "c", None, name, **more)
    assert refused(tmp_path, "c", name, name, **more)


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_only_looks_alike_is_taken(name: str, tmp_path: Path) -> None:
    assert not refused(tmp_path, name, None, None, anonymous=True)
    assert not refused(tmp_path, "c", name, None)
    assert not refused(tmp_path, "c", None, name)


@pytest.mark.parametrize("name", OWN)
async def test_no_board_user_or_page_has_a_name_of_the_gateway(name: str, tmp_path: Path) -> None:
    access = DeviceAccess(Registry(tmp_path), stranger=True)
    assert access.greets(name, proved=False) is Refusal.STRANGER
    assert access.greets("roof-1", proved=False) is None
    users = Users(tmp_path / "users")
    users.add("alice", "right")
    if name.startswith(INSIDE):
        with pytest.raises(UsersError, match="is not a valid user name"):
            users.add(name, "right")
    passwords = Hook(users, AccessSection(url="http://127.0.0.1:1/"))
    logins = PageLogins(lambda: passwords, ["*"])
    status, text = await logins.login(name, "right", "127.0.0.1")  # type: ignore[misc]
    assert (status, text) == (403, "User name or password is wrong.")
    logins.close()


async def test_a_gateway_refuses_its_own_names_without_asking_the_hook(tmp_path: Path) -> None:
    async with gateway(*by_command(tmp_path)) as running:
        for name in OWN:
            for packet in (
                Connect(name, username="carol", password=b"right"),
                Connect("c", username=name, password=b"right"),
            ):
                assert await answer(running.port, packet) == R.NOT_AUTHORIZED
        assert asked(tmp_path) == []
        packet = Connect("c", username="carol", password=b"right")
        assert await answer(running.port, packet) == R.SUCCESS
        assert len(asked(tmp_path)) == 1


# -- the list of devices, which the centre believes


@pytest.mark.parametrize(
    "sections",
    [
        [],
        [AclSection(write=["#"])],
        [AclSection(write=[DEVICES_TOPIC]), AclSection(boards=True, write=[DEVICES_TOPIC])],
        [AclSection(users=["*"], boards=True, write=["onceway/#"])],
    ],
)
def test_only_the_gateway_writes_its_list_of_devices(sections: list[AclSection]) -> None:
    acl = Acl(sections, lambda client: client == "roof-1")
    for user, client in (
        (None, "c"),
        (None, "roof-1"),
        ("alice", "c"),
        ("", "c"),
        ("alice", INSIDE),
    ):
        assert not acl.may_write(user, client, DEVICES_TOPIC)
        assert acl.may_write(user, client, f"{DEVICES_TOPIC}/x") == acl.may_write(
            user, client, "onceway/other"
        )
    assert acl.may_read("alice", "c", DEVICES_TOPIC) == acl.may_read("alice", "c", "onceway/other")
    if not sections:
        assert acl.may_write(INSIDE, f"{INSIDE}-1", DEVICES_TOPIC)


async def test_a_client_cannot_send_a_list_of_devices(tmp_path: Path) -> None:
    uplink = f'[uplink]\nlanding = "file://{tmp_path}/landing"\n'
    async with gateway(*configured(tmp_path, LISTENER + uplink)) as running:
        streams = await asyncio.open_connection("127.0.0.1", running.port)
        client = Wire(*streams, Version.V5)
        client.send(alice(), *(Publish(DEVICES_TOPIC, b"[]", 1, number) for number in (1, 2)))
        assert (await client.take(Connack)).reason == R.SUCCESS
        for _ in range(2):
            assert (await client.take(Puback)).reason == R.NOT_AUTHORIZED
        client.send(Publish("sensors/a", b"1", 1, 3))
        assert (await client.take(Puback)).reason == R.SUCCESS
        client.writer.close()
        will = Will(DEVICES_TOPIC, b"[]", 1)
        packet = Connect("w", username="alice", password=b"right", will=will)
        assert await answer(running.port, packet) == R.NOT_AUTHORIZED
