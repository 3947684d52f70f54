"""Rights to connect, publish, subscribe and receive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.logins import Logins
from gateway.access.peer import DeviceIdentity
from gateway.access.rules import Policy, Refusal, SlowCheck, covers
from gateway.broker.connection import Connection
from gateway.config import AclSection, QueueSection
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.topics import topic_filter_problem, topic_matches
from tests.broker.harness import FOREVER, Anonymous, Client, Passwords, World

V4, V5 = Version.V3_1_1, Version.V5


class Named(Anonymous):
    """Access rules that accept every user name, without a password."""

    def refuses_connect(
        self, connection: Connection, packet: Connect
    ) -> Refusal | SlowCheck | None:
        connection.user = packet.username
        return None


class Slow(Anonymous):
    """Access rules that let another thread check whether the password is `right`."""

    def refuses_connect(
        self, connection: Connection, packet: Connect
    ) -> Refusal | SlowCheck | None:
        wrong = (R.BAD_USER_NAME_OR_PASSWORD, "wrong")
        return SlowCheck(
            packet.username or "", lambda: None if packet.password == b"right" else wrong
        )


def user(world: World, name: str | None, client_id: str = "", **more: object) -> Client:
    return world.accepted(client_id, policy=Policy(Named()), username=name, **more)


ACL = [
    AclSection(users=["alice"], write=["sensors/%c/#"], read=["commands/%c/+", "news/#"]),
    AclSection(users=["board-*"], clients=["wall"], read=["#"]),
    AclSection(users=[""], read=["public/#"], subscribe=["public/now"]),
    AclSection(users=["root"], write=["#"], read=["#"]),
]


def test_a_publication_that_is_not_allowed_gets_0x87_and_goes_nowhere() -> None:
    world = World(acl=ACL)
    watching = user(world, "root", answers=True)
    watching.subscribe("#")
    alice = user(world, "alice", "c1")
    for topic, reason in (
        ("sensors/c1/t", R.SUCCESS),
        ("sensors/c2/t", R.NOT_AUTHORIZED),
        ("news/x", R.NOT_AUTHORIZED),
    ):
        alice.publish(topic, topic, qos=1)
        assert alice.take(Puback).reason == reason
    alice.publish("sensors/c2/t", "qos 0")
    assert watching.payloads == [b"sensors/c1/t"]
    assert world.broker.statistics.refused("publish") == 3


@pytest.mark.mqtt("311:MQTT-3.3.5-2")
def test_a_client_of_3_1_1_is_disconnected_instead() -> None:
    world = World(acl=ACL)
    alice = user(world, "alice", "c1", version=V4)
    alice.publish("elsewhere", "x", qos=1)
    assert alice.closed
    assert alice.received == []


def test_each_filter_of_a_subscription_is_judged() -> None:
    world = World(acl=ACL)
    alice = user(world, "alice", "c1")
    wanted = [
        "commands/c1/+",
        "commands/c1/x",
        "commands/#",
        "news/#",
        "news/+/x",
        "#",
        "$share/g/news/a",
        "$share/g/#",
    ]
    granted = [
        R.GRANTED_QOS_1,
        R.GRANTED_QOS_1,
        R.NOT_AUTHORIZED,
        R.GRANTED_QOS_1,
        R.GRANTED_QOS_1,
        R.NOT_AUTHORIZED,
    ]
    alice.send(Subscribe(1, [Subscription(item, 1) for item in wanted]))
    assert alice.take(Suback).reasons == [*granted, R.GRANTED_QOS_1, R.NOT_AUTHORIZED]
    nobody = user(world, None, "n")
    nobody.send(Subscribe(1, [Subscription("public/now"), Subscription("public/later")]))
    assert nobody.take(Suback).reasons == [R.GRANTED_QOS_0, R.NOT_AUTHORIZED]


def test_a_subscription_wider_than_what_may_be_read_gives_only_that() -> None:
    world = World(
        acl=[
            AclSection(users=["alice"], read=["news/#"], subscribe=["#"]),
            AclSection(users=["root"], write=["#"]),
        ]
    )
    root = user(world, "root", answers=True)
    root.publish("news/old", "old", retain=True)
    root.publish("secret/old", "old", retain=True)
    alice = user(world, "alice", "c1", clean=False, properties=FOREVER)
    alice.subscribe("#")
    for _ in range(2):
        root.publish("news/x", "news", qos=1)
        root.publish("secret/x", "secret", qos=1)
        world.power_cut()
        root = user(world, "root", answers=True)
        alice = user(world, "alice", "c1", clean=False, properties=FOREVER, answers=True)
        assert alice.payloads == [b"news"]
        alice.drop()


@pytest.mark.parametrize("name", ["a/b", "+", "#", "$share", "%u", ""])
def test_a_name_that_would_widen_a_filter_is_not_put_in(name: str) -> None:
    world = World(acl=[AclSection(write=["users/%u/x"])])
    client = user(world, name)
    client.publish("users/a/x", "x", qos=1)
    client.publish("users//x", "x", qos=1)
    assert {packet.reason for packet in client.take_all(Puback)} == {R.NOT_AUTHORIZED}


def test_no_client_publishes_the_brokers_own_figures() -> None:
    client = World().accepted()
    for topic in ("$SYS", "$SYS/broker/uptime"):
        client.publish(topic, "x", qos=1)
        assert client.take(Puback).reason == R.NOT_AUTHORIZED


LEVELS = st.sampled_from(["a", "b", "", "+", "#", "$x"])
FILTERS = (
    st.lists(LEVELS, min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda text: topic_filter_problem(text) is None)
)
NAMES = (
    st.lists(st.sampled_from(["a", "b", "", "$x", "c"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)
)


@given(FILTERS, FILTERS, NAMES)
def test_a_filter_that_covers_another_matches_all_that_it_matches(
    allowed: str, wanted: str, name: str
) -> None:
    if covers(allowed, wanted) and topic_matches(wanted, name):
        assert topic_matches(allowed, name)


@given(FILTERS)
def test_a_filter_covers_itself(topic_filter: str) -> None:
    assert covers(topic_filter, topic_filter)


# -- the owner of a session


@pytest.mark.parametrize("power_cut", [False, True])
def test_no_user_takes_the_session_of_another_one(power_cut: bool) -> None:
    world = World()
    user(world, "alice", "c", clean=False, properties=FOREVER).subscribe("t")
    if power_cut:
        world.power_cut()
    for thief in ("bob", None):
        client = world.connect("c", policy=Policy(Named()), username=thief)
        assert client.take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID
    assert (
        world.connect(
            "c", policy=Policy(Named()), username="alice", clean=False, properties=FOREVER
        )
        .take(Connack)
        .session_present
    )


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_user_gets_no_message_of_an_anonymous_session(
    power_cut: bool, connected: bool, qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(queue=[QueueSection(qos_0=True)])
    before = user(world, None, "c", clean=False, properties=FOREVER)
    before.subscribe("#", qos=qos)
    if not connected:
        before.drop()
    publisher = user(world, None, "p", answers=True)
    publisher.publish("t", "waits", qos=qos)
    if power_cut:
        world.power_cut()
        publisher = user(world, None, "p", answers=True)
    alice = world.connect(
        "c",
        policy=Policy(Named()),
        username="alice",
        clean=False,
        properties=FOREVER,
        answers=True,
    )
    connack = alice.take(Connack)
    assert (connack.reason, connack.session_present) == (0, False)
    publisher.publish("t", "later", qos=qos)
    assert alice.payloads == []
    alice.subscribe("#", qos=qos)
    publisher.publish("t", "mine", qos=qos)
    assert alice.payloads == [b"mine"]
    assert "an earlier anonymous session ends" in caplog.text
    thief = world.connect("c", policy=Policy(Named()), username="bob")
    assert thief.take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID
    nobody = world.connect("c", policy=Policy(Named()), clean=False, properties=FOREVER)
    assert nobody.take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID


def test_shared_subscription_delivers_only_readable_topics() -> None:
    world = World(
        acl=[
            AclSection(users=["alice"], read=["news/#"], subscribe=["#"]),
            AclSection(users=["root"], read=["#"], write=["#"]),
        ]
    )
    alice, root = user(world, "alice", answers=True), user(world, "root", answers=True)
    for client in (alice, root):
        client.subscribe("$share/g/#")
    for number in range(4):
        root.publish("secret/x", str(number), qos=1)
    assert alice.payloads == []
    assert root.payloads == [b"0", b"1", b"2", b"3"]


def test_no_client_takes_the_session_of_a_device() -> None:
    world = World()
    squatter = world.durable("pump-3")
    device = DeviceIdentity("pump-3", 7, 1)
    world.durable("pump-3", device=device)
    assert squatter.closed
    assert world.connect("pump-3").take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID
    assert (
        world.connect("pump-3", clean=False, properties=FOREVER, device=device)
        .take(Connack)
        .session_present
    )


# -- answers that take time


def test_packets_wait_during_a_password_check() -> None:
    world = World()
    client = world.open(policy=Policy(Slow()))
    client.bring(packets(Connect("c", username="u", password=b"right"), Pingreq()))
    client.bring(packets(Publish("t", b"x", 1, 1)))
    assert client.raw == b""
    world.turn()
    assert [type(packet) for packet in client.received] == [Connack, Pingresp, Puback]
    assert client.connection.user == "u"


def test_wrong_password_is_refused_and_later_packets_are_dropped() -> None:
    world = World()
    client = world.open(policy=Policy(Slow()))
    client.bring(packets(Connect("c", username="u", password=b"guess"), Publish("spool/t", b"x")))
    world.turn()
    assert client.take(Connack).reason == R.BAD_USER_NAME_OR_PASSWORD
    assert client.closed
    assert world.broker.spool.size == 0
    assert world.broker.sessions == {}


def test_client_that_sends_too_much_before_the_answer_is_disconnected() -> None:
    world = World()
    client = world.open(policy=Policy(Slow()))
    client.bring(packets(Connect("c", username="u", password=b"right")))
    for _ in range(100):
        client.bring(bytes(1000))
    assert client.connection.closing is not None
    world.turn()
    assert client.take(Connack).reason == R.QUOTA_EXCEEDED
    assert world.broker.statistics.refusals == {("connect", R.QUOTA_EXCEEDED): 1}


def packets(*wanted: Connect | Pingreq | Publish) -> bytes:
    return b"".join(encode(packet, V5) for packet in wanted)


# -- bounds on number and rate


def test_the_number_of_connections_has_a_bound() -> None:
    world = World(connections=3)
    clients = [world.accepted() for _ in range(3)]
    refused = world.connect()
    assert refused.take(Connack).reason == R.QUOTA_EXCEEDED
    assert refused.closed
    world.accepted("pump-3", device=DeviceIdentity("pump-3", 1, 1))
    for client in clients[:2]:
        client.disconnect()
    world.accepted()


def test_connects_per_second_from_one_address_have_a_bound() -> None:
    world = World(connects_per_s=5)
    reasons = [world.connect().take(Connack).reason for _ in range(60)]
    assert reasons == [R.SUCCESS] * 50 + [R.CONNECTION_RATE_EXCEEDED] * 10
    world.sleep(1)
    reasons = [world.connect().take(Connack).reason for _ in range(10)]
    assert reasons == [R.SUCCESS] * 5 + [R.CONNECTION_RATE_EXCEEDED] * 5
    assert world.broker.statistics.refused("connect") == 15


# -- denied rights


def test_denied_topic_is_allowed_by_no_other_section() -> None:
    world = World(
        acl=[
            AclSection(write=["#"], read=["#"]),
            AclSection(users=["alice"], deny_write=["admin/#"], deny_read=["private/+/secret"]),
            AclSection(users=["root"], deny_write=["logs/%u"], deny_read=["%c/#"]),
        ]
    )
    client, root = user(world, "alice", answers=True), user(world, "root", "me", answers=True)
    assert client.subscribe("private/+/secret", "private/a/secret", "private/#").reasons == [
        R.NOT_AUTHORIZED,
        R.NOT_AUTHORIZED,
        R.GRANTED_QOS_2,
    ]
    assert root.subscribe("me/#", "#").reasons == [R.NOT_AUTHORIZED, R.GRANTED_QOS_2]
    for topic in ("private/a/secret", "private/a/open", "logs/root", "me/x"):
        root.publish(topic, topic, qos=1)
    assert [packet.reason for packet in root.take_all(Puback)] == [0, 0, R.NOT_AUTHORIZED, 0]
    assert client.payloads == [b"private/a/open"]
    assert root.payloads == [b"private/a/secret", b"private/a/open"]
    client.publish("admin/x", "x", qos=1)
    assert client.take_all(Puback)[0].reason == R.NOT_AUTHORIZED


def test_sections_that_only_deny_allow_the_rest_and_empty_ones_allow_nothing() -> None:
    world = World(acl=[AclSection(deny_write=["admin/#"])])
    client = user(world, "alice")
    for topic in ("admin/x", "other"):
        client.publish(topic, "x", qos=1)
    assert [packet.reason for packet in client.take_all(Puback)] == [R.NOT_AUTHORIZED, 0]
    assert client.subscribe("#").reasons == [R.GRANTED_QOS_2]
    world = World(acl=[AclSection(deny_write=["admin/#"]), AclSection(users=["bob"])])
    client = user(world, "alice")
    client.publish("other", "x", qos=1)
    assert client.take(Puback).reason == R.NOT_AUTHORIZED


def test_name_with_a_wildcard_does_not_pass_a_deny_rule() -> None:
    world = World(acl=[AclSection(deny_write=["of/%c/x"])])
    client = user(world, "alice", "+")
    client.publish("of/+/x".replace("+", "bob"), "x", qos=1)
    assert client.take(Puback).reason == R.NOT_AUTHORIZED


# -- boards

EVERYBODY = AclSection(write=["sensors/%u/#"], read=["commands/%c/#"])
"""Access rules of the example in the guide."""
BOARDS_ALONE = AclSection.model_validate({"boards": True, "write": ["sensors/%c/#"]})
WALL = AclSection.model_validate({"users": ["*"], "boards": True, "deny_write": ["readings/#"]})
OF_NOBODY = AclSection(users=[""], write=["public/#"])

R_NO = R.NOT_AUTHORIZED


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "stranger"])
@pytest.mark.parametrize(
    ("sections", "board", "anonymous", "alice"),
    [
        pytest.param([EVERYBODY], [0, 0, 0], [R_NO] * 3, [R_NO] * 3, id="users alone"),
        pytest.param([BOARDS_ALONE], [0, R_NO, R_NO], [0, 0, 0], [0, 0, 0], id="boards alone"),
        pytest.param([EVERYBODY, BOARDS_ALONE], [0, R_NO, R_NO], [R_NO] * 3, [R_NO] * 3, id="both"),
        pytest.param([WALL], [0, R_NO, 0], [0, R_NO, 0], [0, R_NO, 0], id="a wall"),
        pytest.param(
            [AclSection(deny_write=["readings/#"])],
            [0, 0, 0],
            [0, R_NO, 0],
            [0, R_NO, 0],
            id="a wall for users",
        ),
        pytest.param(
            [OF_NOBODY], [R_NO, R_NO, 0], [R_NO, R_NO, 0], [R_NO] * 3, id="the nameless user"
        ),
    ],
)
def test_a_rule_holds_for_boards_only_if_it_names_them(
    sections: list[AclSection],
    board: list[int],
    anonymous: list[int],
    alice: list[int],
    registered: bool,
) -> None:
    world = World(acl=sections)
    if registered:
        world.broker.registered = {"roof-1"}.__contains__
    device = DeviceIdentity("roof-1", 7, 1)
    clients = [
        world.durable("roof-1", device=device, answers=True),
        user(world, None, "laptop", answers=True),
        user(world, "alice", "phone", answers=True),
    ]
    for client, reasons in zip(clients, (board, anonymous, alice), strict=True):
        for topic in ("sensors/roof-1/t", "readings/x", "public/x"):
            client.publish(topic, "x", qos=1)
        assert [packet.reason for packet in client.take_all(Puback)] == reasons


def test_commands_wait_for_a_board_that_no_rule_names() -> None:
    world = World(acl=[EVERYBODY, AclSection(users=["root"], write=["#"])])
    world.broker.registered = {"roof-1"}.__contains__
    device = DeviceIdentity("roof-1", 7, 1)
    board = world.durable("roof-1", device=device)
    board.subscribe("orders/#")
    board.disconnect()
    user(world, "root").publish("orders/now", "go", qos=1)
    back = world.connect("roof-1", clean=False, properties=FOREVER, device=device)
    assert back.payloads == [b"go"]


# -- the right to state the identity of a publication

STATED = {PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", "12")]}


@pytest.mark.parametrize(
    ("name", "client_id", "identity"),
    [
        ("alice", "roof-2", ("roof-2", 7, 12)),
        ("alice", "roof-3", (None, None, None)),
        ("mallory", "roof-2", (None, None, None)),
        ("mallory", "cellar-mallory", ("cellar-mallory", 7, 12)),
    ],
)
def test_acl_decides_who_may_state_an_identity(
    name: str, client_id: str, identity: tuple[object, ...]
) -> None:
    world = World(
        acl=[
            AclSection(users=["alice"], write=["#"], identity=["roof-2"]),
            AclSection(write=["#"], identity=["cellar-%u"]),
        ]
    )
    user(world, name, client_id).publish("spool/t", "x", 2, properties=STATED)
    assert world.rows("SELECT device, incarnation, sequence FROM spool") == [identity]


def test_without_an_acl_each_client_may_speak_for_its_own_name() -> None:
    world = World()
    user(world, None, "c1").publish("spool/t", "x", 1, properties=STATED)
    assert world.rows("SELECT device, incarnation, sequence FROM spool") == [("c1", 7, 12)]


@pytest.mark.parametrize("call", ["answer", "holds", "_refuses", "_judge", "submit"])
def test_error_in_one_login_refuses_no_other_client(
    call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker compares passwords one after the other. An error in one comparison must not stop
    the comparisons that wait.
    """
    world = World()

    def boom(*args: object) -> bool:
        raise ArithmeticError("boom")

    class Failing(Anonymous):
        def refuses_connect(self, connection: Connection, packet: Connect) -> SlowCheck:
            answer = boom if call == "answer" else lambda: None
            return SlowCheck("bob", answer, boom if call == "holds" else lambda: True)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        if call == "submit":
            patch.setattr(Passwords, call, boom)
        elif call.startswith("_"):
            patch.setattr(Logins, call, boom)
        refused = world.connect("bob", policy=Policy(Failing()))
        assert refused.take(Connack).reason == R.UNSPECIFIED_ERROR
        assert refused.closed
    assert "ArithmeticError: boom" in caplog.text
    slow = Policy(Slow())
    for name in ("one", "two"):
        world.accepted(name, policy=slow, username=name, password=b"right")
