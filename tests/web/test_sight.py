"""Roles of the page, and what the page shows to a viewer whom the access rules forbid to read some
topics.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.broker.broker import Broker
from gateway.broker.store_rows import Recovered
from gateway.config import Config, PageSection, parse
from gateway.mirror.last import LONGEST_TOPIC, MOST_TOPICS, LastReadings
from gateway.mqtt.packets import Connect, Puback, Publish
from gateway.payload.readings import Reading
from gateway.service.cli import app
from gateway.store.session_views import SessionView
from gateway.web.page import Needs, PageServer
from gateway.web.sight import Sight, Sights, advice
from tests.service.wire import wire
from tests.web.page import OPERATOR, PASSWORD, PLAIN, USER, Browser, browser, page
from tests.web.test_page import events

LOOKS = {
    ("POST", "/api/logout"),
    ("GET", "/api/messages"),
    ("GET", "/api/clients"),
    ("GET", "/api/events"),
    ("GET", "/api/air"),
    ("GET", "/api/site"),
    ("GET", "/api/board"),
    ("GET", "/api/where"),
}
"""Requests that viewers may make. `test_viewer_learns_nothing_that_its_rules_forbid` makes each of
these requests.
"""
OPEN = {("POST", "/api/login"), ("GET", "/api/me")}
ROOF = f'[[acl]]\nusers = ["{USER}"]\nread = ["sensors/roof-1/#"]\n'
OTHERS = '[[acl]]\nusers = ["bob", "otto"]\nread = ["#"]\nwrite = ["#"]\n'


# -- roles


def test_each_request_of_the_page_has_a_role() -> None:
    """If this fails, add the new request to one of the sets above."""
    routes = PageServer._ROUTES
    assert {route for route, (needs, _) in routes.items() if needs is Needs.VIEWER} == LOOKS
    assert set(PageServer._OPEN) == OPEN
    assert not OPEN & routes.keys()
    assert all(path.startswith("/api/") for _, path in routes)


@pytest.mark.parametrize("rules", ["", ROOF + OTHERS])
async def test_requests_without_the_role_are_refused(tmp_path: Path, rules: str) -> None:
    async with page(tmp_path, [], rules) as shown, browser(shown.url) as client:

        async def status(method: str, path: str) -> int:
            if method == "GET":
                async with client._http.get(shown.url + path) as answer:
                    return answer.status
            return (await client.post(path, {}))[0]

        for method, path in PageServer._ROUTES:
            assert await status(method, path) == 401, path
        assert await client.login(USER) == 200
        for (method, path), (needs, _) in PageServer._ROUTES.items():
            found = await status(method, path) if path != "/api/logout" else 200
            assert (found == 403) == (needs is Needs.OPERATOR), path
        for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
            for _, path in PageServer._ROUTES:
                async with client._http.request(method, shown.url + path) as answer:
                    assert answer.status == 404, (method, path)


@pytest.mark.parametrize(
    ("section", "lena", "otto"),
    [
        ("", 200, 200),
        ('operators = ["otto"]\n', 403, 200),
        ('viewers = ["otto"]\n', 403, 200),
        ('viewers = ["l*"]\n', 200, 403),
        ('operators = ["otto"]\nviewers = ["lena"]\n', 200, 200),
        ("operators = []\n", 403, 403),
        ("viewers = []\n", 403, 403),
    ],
)
async def test_page_admits_users_with_a_role(
    tmp_path: Path, section: str, lena: int, otto: int
) -> None:
    async with page(tmp_path, [], section=PLAIN + section) as shown, browser(shown.url) as client:
        assert await client.login(USER) == lena
        assert await client.login(OPERATOR) == otto
        me = (await client.get("/api/me"))[1]
        if otto == 200:
            assert me["operator"] == ("operators" in section)


async def test_wrong_password_does_not_tell_whether_a_user_has_a_role(tmp_path: Path) -> None:
    section = PLAIN + f'operators = ["{OPERATOR}"]\n'
    async with page(tmp_path, [], section=section) as shown, browser(shown.url) as client:
        answers = [
            await client.post("/api/login", {"user": user, "password": "wrong"})
            for user in (USER, OPERATOR, "nobody")
        ]
        assert answers == [(403, {"error": "User name or password is wrong."})] * 3
        status, found = await client.post("/api/login", {"user": USER, "password": PASSWORD})
        assert (status, "`viewers` of [page]" in str(found["error"])) == (403, True)


def test_roles_that_are_missing_or_empty_are_warned_about() -> None:
    assert advice(None) == []
    for given, word in (
        ({}, "every user with a password may look"),
        ({"bind": ":8080"}, "every user with a password may look"),
        ({"operators": []}, "no user may log in"),
        ({"viewers": []}, "no user may log in"),
        ({"viewers": ["*"]}, None),
        ({"operators": ["otto"]}, None),
    ):
        found = advice(PageSection.model_validate(given))
        assert (len(found), all(str(word) in text for text in found)) == (bool(word), True)


def test_check_config_warns_about_a_page_without_roles(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    for section, warns in ((PLAIN, True), (PLAIN + 'viewers = ["lena"]\n', False)):
        file.write_text(f'[gateway]\ndata = "{tmp_path}"\n[[listener]]\nbind = ":1883"\n{section}')
        found = CliRunner().invoke(app, ["check-config", "--config", str(file)])
        assert found.exit_code == 0
        assert ("warning: page: every user" in found.output) == warns


# -- the view of a viewer at a running gateway

FORBIDDEN = ("roof-2", "cellar", "77.25", "bob", "secret", "cookie-1")


@asynccontextmanager
async def two_boards(folder: Path, rules: str, section: str = "") -> AsyncIterator[Any]:
    """Run a page with two boards, retained messages of both, and a client of another user."""
    given = {"section": section} if section else {}
    users = (USER, OPERATOR, "bob")
    login = Connect("cellar-client", username="bob", password=PASSWORD.encode())
    async with page(folder, ["roof-1", "roof-2"], rules, users, **given) as shown:  # type: ignore[arg-type]
        first, second = shown.sensors
        await first.measure(1.5)
        await second.measure(77.25)
        await second.publish("logs/roof-2", b"unknown command: cookie-1")
        async with wire(shown.running.port, login) as bob:
            for number, topic in enumerate(("sensors/roof-1/kept", "sensors/roof-2/secret"), 1):
                bob.send(Publish(topic, b"secret" if number == 2 else b"7", 1, number, retain=True))
                await bob.take(Puback)
            yield shown, bob


async def said(client: Browser, shown: Any, bob: Any) -> str:
    """Make every request of this user that only reads: each GET address of the page except
    `/api/flash`, also for forbidden devices and clients, and both event streams. Return the text of
    all answers.
    """
    texts = []
    queries = {
        "/api/clients": ("", "?wanted=roof", "?wanted=bob", "?wanted=127.0.0.1", "?wanted=cellar"),
        "/api/board": tuple(f"?name={name}" for name in ("roof-1", "roof-2", "cellar-client")),
        "/api/where": ("?device=roof-1&sequence=1", "?device=roof-2&sequence=1"),
    }
    for method, path in sorted(PageServer._ROUTES):
        if method == "GET" and path not in ("/api/events", "/api/messages", "/api/flash"):
            for query in queries.get(path, ("",)):
                async with client._http.get(shown.url + path + query) as answer:
                    texts.append(await answer.text())
    async with events(client) as news, events(client, "/api/messages?filter=%23") as messages:
        texts.append(json.dumps(await anext(news)))
        await anext(messages)
        _, second = shown.sensors
        await second.measure(77.25, "secret")
        await second.publish("logs/roof-2", b"unknown command: cookie-1")
        bob.send(Publish("cellar/secret", b"bob", 1, 9), Publish("sensors/roof-1/x", b"end", 1, 10))
        await bob.pick(Puback)
        async for event in messages:
            texts.append(json.dumps(event))
            if any(item["topic"] == "sensors/roof-1/x" for item in event["messages"]):
                break
        for _ in range(3):
            texts.append(json.dumps(await anext(news)))
    return "\n".join(texts)


async def test_viewer_learns_nothing_that_its_rules_forbid(tmp_path: Path) -> None:
    async with two_boards(tmp_path, ROOF + OTHERS) as (shown, bob), browser(shown.url) as client:
        assert await client.login(USER) == 200
        text = await said(client, shown, bob)
        assert [word for word in FORBIDDEN if word in text] == []
        assert '"roof-1"' in text
        assert "sensors/roof-1/kept" in text
        assert "1.5" in text
        status, _ = await client.get("/api/where?device=roof-2&sequence=1")
        assert status == 404
        assert await client.login(OPERATOR) == 200
        text = await said(client, shown, bob)
        assert [word for word in FORBIDDEN if word not in text] == []


@pytest.mark.parametrize("section", [PLAIN, ""])
async def test_viewer_sees_everything_without_roles_or_without_rules(
    tmp_path: Path, section: str
) -> None:
    rules = ROOF + OTHERS if section else ""
    async with (
        two_boards(tmp_path, rules, section) as (shown, _),
        browser(shown.url) as client,
        events(await logged_in(client)) as news,
    ):
        first = await anext(news)
        assert sorted(row["name"] for row in first["boards"]) == ["roof-1", "roof-2"]
        assert first["overview"]["boards"]["known"] == 2
        found: Any = (await client.get("/api/clients"))[1]["sessions"]
        assert "cellar-client" in [item["client"] for item in found["shown"]]


async def logged_in(client: Browser) -> Browser:
    assert await client.login(USER) == 200
    return client


async def test_new_rules_end_a_stream_that_shows_more(tmp_path: Path) -> None:
    async with (
        two_boards(tmp_path, "") as (shown, _),
        browser(shown.url) as client,
        browser(shown.url) as other,
    ):
        assert await other.login(OPERATOR) == 200
        async with events(await logged_in(client)) as news, events(other) as whole:
            assert len((await anext(news))["boards"]) == 2
            await anext(whole)
            shown.file.write_text(shown.file.read_text() + ROOF + OTHERS)
            shown.running.process.send_signal(1)  # SIGHUP
            await shown.running.logged("read again")
            later = [event async for event in news]
            assert all("all" not in event for event in later)
            assert await anext(whole), "an operator looks on"
        async with events(client) as news:
            assert [row["name"] for row in (await anext(news))["boards"]] == ["roof-1"]


async def test_viewer_sees_values_that_the_mirror_publishes(tmp_path: Path) -> None:
    rules = f'[[acl]]\nusers = ["{USER}"]\nread = ["readings/roof-2/adc0"]\n[mirror]\n' + OTHERS
    async with (
        two_boards(tmp_path, rules) as (shown, _),
        browser(shown.url) as client,
        events(await logged_in(client)) as news,
    ):
        assert [row["name"] for row in (await anext(news))["boards"]] == ["roof-2"]
        await shown.sensors[1].measure(3.0, "secret")
        (series,) = (await client.get("/api/board?name=roof-2"))[1]["series"]  # type: ignore[misc]
        assert series["name"] == "adc0"


# -- access rules and views in one process


def sight(
    acl: list[dict[str, object]], readings: LastReadings, *, operator: bool = False, **more: object
) -> Sight:
    config = parse({"acl": acl} | more, "here")
    broker = Broker(config, Recovered())
    mirror = config.mirror.topic if config.mirror else None
    roles = PageSection(viewers=["lena"])
    return Sights(broker, readings, roles, mirror).of("lena", operator=operator)


@pytest.fixture
def readings(tmp_path: Path) -> LastReadings:
    found = LastReadings(tmp_path)
    found.take("roof-1", reading("adc0", 2), "sensors/roof-1/adc0")
    found.take("roof-1", reading("adc1", 3), "sensors/roof-1/adc1")
    found.take("roof-1", reading("old", 1))
    return found


def reading(name: str, received: int) -> Reading:
    return Reading(name, 1.0, "V", None, "unknown", None, received)


MINE = {"users": ["lena"]}


@pytest.mark.parametrize(
    ("acl", "whole", "values"),
    [
        ([], True, ["adc0", "adc1", "old"]),
        ([MINE | {"read": ["#"]}], True, ["adc0", "adc1", "old"]),
        ([{"users": ["bob"], "deny_read": ["#"]}], True, ["adc0", "adc1", "old"]),
        ([MINE | {"deny_write": ["#"]}], True, ["adc0", "adc1", "old"]),
        ([{"boards": True, "read": ["a"]}], True, ["adc0", "adc1", "old"]),
        ([MINE | {"read": ["sensors/+/adc0"]}], False, ["adc0"]),
        ([MINE | {"read": ["sensors/#"]}], False, ["adc0", "adc1"]),
        ([MINE | {"read": ["+/#"]}], False, ["adc0", "adc1"]),
        ([MINE | {"subscribe": ["#"], "read": ["seen/#"]}], False, []),
        ([MINE | {"subscribe": ["#"]}], False, []),
        ([MINE | {"read": ["#"], "deny_read": ["sensors/+/adc1"]}], False, ["adc0"]),
        ([MINE | {"deny_read": ["sensors/roof-1/adc1"]}], False, ["adc0"]),
        ([{"users": ["*"], "deny_read": ["sensors/#"]}], False, []),
        ([{"clients": ["lena"], "deny_read": ["sensors/+/adc1"]}], False, ["adc0"]),
        ([{"users": ["bob"], "read": ["#"]}], False, []),
        ([{"users": ["bob"], "write": ["#"]}], False, []),
        ([MINE | {"read": ["sensors/%u/#"]}], False, []),
        ([MINE | {"clients": ["x"], "read": ["#"]}], False, []),
    ],
)
def test_value_is_seen_when_its_topic_may_be_read(
    acl: list[dict[str, object]], whole: bool, values: list[str], readings: LastReadings
) -> None:
    found = sight(acl, readings)
    assert found.whole == whole
    assert [name for name in readings.of("roof-1") if found.value("roof-1", name)] == values
    assert found.board("roof-1") == bool(values)
    assert sight(acl, readings, operator=True).whole


def test_reading_with_an_unknown_topic_among_its_topics_is_hidden(readings: LastReadings) -> None:
    wide = sight([MINE | {"read": ["+/#"]}], readings)
    for number in range(MOST_TOPICS):
        readings.take("roof-2", reading("adc0", 1), f"sensors/{number}")
        assert wide.value("roof-2", "adc0")
    for _ in range(2):
        readings.take("roof-2", reading("adc0", 1), "sensors/more")
        assert not wide.value("roof-2", "adc0")
    assert len(readings.of("roof-2")["adc0"].topics) == MOST_TOPICS + 1
    readings.take("roof-3", reading("adc0", 1), "x" * (LONGEST_TOPIC + 1))
    assert not wide.value("roof-3", "adc0")


def test_value_published_on_two_topics_needs_the_right_to_both(readings: LastReadings) -> None:
    readings.take("roof-2", reading("adc0", 1), "sensors/a")
    readings.take("roof-2", reading("adc0", 2), "secret/a")
    assert not sight([MINE | {"read": ["sensors/#"]}], readings).value("roof-2", "adc0")
    assert sight([MINE | {"read": ["sensors/#", "secret/#"]}], readings).value("roof-2", "adc0")


def test_topics_of_values_outlive_a_restart(readings: LastReadings, tmp_path: Path) -> None:
    text = readings.news()
    assert text is not None
    readings.write(text)
    later = LastReadings(tmp_path)
    assert later.of("roof-1")["adc0"].topics == ("sensors/roof-1/adc0",)
    for spoilt in ("{", "[]", '{"roof-1": 3}', '{"roof-1": {"adc0": 3}}'):
        (tmp_path / later.saved_topics.job.name).write_text(spoilt)
        assert LastReadings(tmp_path).of("roof-1")["adc0"].topics == ()


def test_board_without_values_is_seen_by_its_status(readings: LastReadings) -> None:
    found = sight([MINE | {"read": ["sensors/roof-9/#"]}], readings)
    assert [found.board(name) for name in ("roof-9", "roof-8")] == [True, False]
    mirrored = sight([MINE | {"read": ["readings/roof-8/$state"]}], readings, mirror={})
    assert [mirrored.board(name) for name in ("roof-9", "roof-8")] == [False, True]


def test_row_has_what_may_be_read(readings: LastReadings) -> None:
    row = {"name": "roof-1", "last": {"name": "adc1"}, "life": 7.0, "answer": "done"}
    (last, life, answer) = ("last", "life", "answer")
    shown = sight([MINE | {"read": ["sensors/+/adc0"]}], readings).row(row)
    assert shown is not None
    assert (shown[last]["name"], shown[life], shown[answer]) == ("adc0", None, None)
    readings.take("roof-1", reading("life", 1), "sensors/roof-1/status")
    acl = [MINE | {"read": ["sensors/+/status", "logs/+"]}]
    shown = sight(acl, readings).row(row)
    assert shown is not None
    assert (shown[life], shown[answer]) == (7.0, "done")
    assert sight([MINE | {"read": ["logs/+"]}], readings).row(row) is None
    assert sight([], readings).row(row) is row


def session(client: str, user: str | None, *, device: bool = False) -> SessionView:
    return SessionView(client, True, "10.0.0.9:1", "5.0", user, device, None, None, 0, 0, 0, 0, 0)


def test_session_is_seen_by_its_user_and_by_readers_of_its_board(readings: LastReadings) -> None:
    found = sight([MINE | {"read": ["sensors/roof-1/#"]}], readings)
    assert found.session(session("phone", "lena"))
    assert found.session(session("roof-1", None, device=True))
    assert not found.session(session("roof-2", None, device=True))
    assert not found.session(session("roof-1", None))
    assert not found.session(session("roof-1", "bob"))
    assert not found.session(session("lena", None))
    assert sight([], readings).session(session("roof-1", "bob"))


def test_hidden_problems_are_counted(readings: LastReadings) -> None:
    found = sight([MINE | {"read": ["sensors/roof-1/#"]}], readings)
    whose = {"roof-1 is silent": "roof-1", "roof-2 is silent": "roof-2"}
    problems = [
        {"part": "boards", "what": "roof-1 is silent", "todo": ""},
        {"part": "boards", "what": "roof-2 is silent", "todo": ""},
        {"part": "store", "what": "the disk is full", "todo": ""},
        {"part": "clients", "what": "10.0.0.1 and 10.0.0.2 fight for cellar", "todo": ""},
    ]
    shown = [(item["part"], item["what"]) for item in found.problems(problems, whose)]
    assert shown == [
        ("boards", "roof-1 is silent"),
        ("store", "the disk is full"),
        ("hidden", "2 problems of boards or parts that you may not see"),
    ]
    assert found.problems(problems[2:3], whose) == problems[2:3]
    assert found.problems([], whose) == []


def test_sight_follows_new_rules(readings: LastReadings) -> None:
    broker = Broker(Config(), Recovered())
    sights = Sights(broker, readings, PageSection(viewers=["*"]), None)
    viewer, boss = sights.of("lena", operator=False), sights.of("otto", operator=True)
    assert sights.of("lena", operator=False) is viewer
    broker.reconfigure(parse({"acl": [MINE | {"read": ["a"]}]}, "here"))
    assert (viewer.holds, boss.holds) == (False, True)
    later = sights.of("lena", operator=False)
    assert not later.whole
    assert later.holds
    assert not sights.of("otto", operator=True).topic("a"), "rules hold for operators, too"
