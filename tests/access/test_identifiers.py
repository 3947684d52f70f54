"""Client identifiers: no client gets the identifier of another user, or of a board."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.access.identifiers import Identifiers
from gateway.access.rules import Acl
from gateway.config import AccessSection, ConfigError, advice, parse
from gateway.mqtt.packets import Connack, Connect, Version
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from provisioning.registry import Registry
from tests.access.test_access import LISTENER, alice, answer, configured
from tests.service.process import gateway
from tests.service.wire import Wire

USERS, BOARDS = {"alice", "bob"}, {"pump-3"}


def chosen(user: str | None, wanted: str, **section: Any) -> str | None:
    """Return the identifier that a client gets; None if the client is refused."""
    names = Identifiers(AccessSection(**section), USERS.__contains__, BOARDS.__contains__)
    found = names.choose(user, wanted)
    if isinstance(found, str):
        return found
    assert found[0] == R.CLIENT_IDENTIFIER_NOT_VALID
    return None


@pytest.mark.parametrize("way", ["any", "user name", "user name prefix"])
@pytest.mark.parametrize("user", [None, "alice"])
def test_the_name_of_a_board_is_kept_for_it(way: str, user: str | None) -> None:
    assert chosen(user, "pump-3", identifiers=way) is None
    assert chosen("pump-3", "pump-3", identifiers=way) == "pump-3"


@pytest.mark.parametrize(
    ("user", "wanted", "expected"),
    [
        ("alice", "", "alice"),
        ("alice", "alice", "alice"),
        ("alice", "alice:2", None),
        ("alice", "bob", None),
        ("alice", "Alice", None),
        (None, "alice", None),
        (None, "alice:2", None),
        (None, "visitor", "visitor"),
    ],
)
def test_the_identifier_may_have_to_be_the_user_name(
    user: str | None, wanted: str, expected: str | None
) -> None:
    assert chosen(user, wanted, identifiers="user name") == expected


@pytest.mark.parametrize(
    ("user", "wanted", "allowed"),
    [
        ("alice", "alice", True),
        ("alice", "alice:", True),
        ("alice", "alice:phone", True),
        ("alice", "alice-phone", False),
        ("alice", "alicephone", False),
        ("alice", "bob:phone", False),
        (None, "bob:phone", False),
        (None, "bobby", True),
    ],
)
def test_the_identifier_may_have_to_begin_with_the_user_name(
    user: str | None, wanted: str, allowed: bool
) -> None:
    found = chosen(user, wanted, identifiers="user name prefix")
    assert found == (wanted if allowed else None)


@pytest.mark.parametrize("way", ["any", "user name", "user name prefix"])
@pytest.mark.parametrize("user", [None, "alice", "carol"])
@pytest.mark.parametrize("wanted", ["bob", "bob:", "bob:phone"])
def test_the_name_of_a_user_is_kept_for_that_user(way: str, user: str | None, wanted: str) -> None:
    """An [[acl]] rule with %c could otherwise let one user receive the commands for another
    user.
    """
    assert chosen(user, wanted, identifiers=way) is None
    assert chosen("bob", wanted, identifiers="any") == wanted


def test_an_identifier_that_is_left_to_us_follows_the_rules() -> None:
    first, second = (chosen("alice", "", identifiers="user name prefix") for _ in range(2))
    assert first
    assert first.startswith("alice:")
    assert first != second
    assert (chosen(None, "", prefixes=["site-", "x"]) or "").startswith("site-")


def test_prefixes_hold_for_all() -> None:
    assert chosen("alice", "site-1", prefixes=["site-", "lab-"]) == "site-1"
    assert chosen(None, "lab-1", prefixes=["site-", "lab-"]) == "lab-1"
    assert chosen("alice", "other", prefixes=["site-", "lab-"]) is None


def test_impossible_settings_are_explained() -> None:
    with pytest.raises(
        ConfigError, match=r"access\.identifiers = 'username': input should be 'any'"
    ):
        parse({"access": {"identifiers": "username"}}, "here")
    with pytest.raises(ConfigError, match="prefixes"):
        parse({"access": {"prefixes": [""]}}, "here")


@pytest.mark.parametrize(
    ("acl", "access", "warns"),
    [
        ({"read": ["commands/%c/#"]}, {}, True),
        ({"write": ["a/%c"]}, {"identifiers": "any"}, True),
        ({"read": ["commands/%u/#"]}, {}, False),
        ({"read": ["commands/%c/#"]}, {"identifiers": "user name"}, False),
        ({"read": ["commands/%c/#"]}, {"identifiers": "user name prefix"}, False),
        ({"boards": True, "read": ["commands/%c/#"]}, {}, False),
        ({"deny_read": ["commands/%c/#"]}, {}, False),
    ],
)
def test_rule_for_free_identifiers_causes_a_warning(
    acl: dict[str, object], access: dict[str, object], warns: bool
) -> None:
    found = advice(parse({"acl": [acl], "access": access}, "here"))
    assert any("%c is the client identifier" in text for text in found) == warns


@pytest.mark.mqtt("MQTT-3.1.3-7", "MQTT-3.2.2-16")
async def test_a_gateway_goes_by_its_rules_and_by_the_registry(tmp_path: Path) -> None:
    text = f'{LISTENER}anonymous = true\n[access]\nidentifiers = "user name"\n'
    arguments = configured(tmp_path, text)
    Registry(tmp_path / "data" / "registry.db").admit("pump-3")
    async with gateway(*arguments) as running:
        client = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
        client.send(alice(client_id=""))
        connack = await client.take(Connack)
        assert (connack.properties or {})[P.ASSIGNED_CLIENT_IDENTIFIER] == "alice"
        refused = R.CLIENT_IDENTIFIER_NOT_VALID
        assert await answer(running.port, alice(client_id="c1")) == refused
        assert await answer(running.port, alice(b"guess", "c1")) == R.BAD_USER_NAME_OR_PASSWORD
        assert await answer(running.port, Connect("alice")) == refused
        assert await answer(running.port, Connect("pump-3")) == refused
        assert await answer(running.port, Connect("visitor")) == R.SUCCESS
        await running.logged("'c1' is not the user name (access.identifiers)")
        client.writer.close()


@pytest.mark.parametrize("what", ["read", "subscribe"])
@pytest.mark.parametrize(
    ("users", "user", "client", "may"),
    [
        (["*"], "mallory", "pump", False),
        (["*"], "alice", "pump", False),
        (["*"], "alice", "alice", True),
        (["*"], "alice", "alice:pump", True),
        (["*"], "alice", "alice-pump", False),
        (["alice", "mallory"], "mallory", "pump", False),
        (["fleet-*"], "fleet-1", "pump", False),
        (["fleet"], "fleet", "pump", True),
        ([""], None, "pump", True),
        (["", "alice"], "alice", "pump", False),
    ],
)
def test_filter_with_an_identifier_that_others_may_take_lets_no_client_read(
    what: str, users: list[str], user: str | None, client: str, may: bool
) -> None:
    """The topics of the rule contain `%c`, which stands for the client identifier. The default of
    access.identifiers, "any", allows several users to use one identifier.
    """
    rule = {"users": users, what: ["commands/%c/#"], "write": ["sensors/%c"]}
    config = parse({"acl": [rule, {"users": ["root"], "read": ["#"]}]}, "here")
    acl = Acl(config.acl, owns=config.owns_identifier)
    assert acl.may_subscribe(user, client, f"commands/{client}/#") == may
    assert acl.may_read(user, client, f"commands/{client}/now") == (may and what == "read")
    assert acl.may_write(user, client, f"sensors/{client}"), "devices go on publishing"
    assert acl.may_subscribe("root", "any", "commands/#")


def test_a_user_with_rules_of_its_own_reads_nothing_of_a_fleet() -> None:
    rules = [{"users": [name], "read": ["commands/%c"]} for name in ("fleet", "mallory")]
    config = parse({"acl": rules}, "here")
    acl = Acl(config.acl, owns=config.owns_identifier)
    assert not acl.may_subscribe("mallory", "pump", "commands/pump")
    assert acl.may_subscribe("mallory", "mallory", "commands/mallory")
