"""Logins, roles and figures of the page, requested like a browser does."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import cbor2
import pytest

from gateway.access.users import Users
from gateway.config import advice, parse
from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.payload.answers import CORRELATION
from gateway.web.log_lines import MOST, LogLines
from gateway.web.messages import payload_text
from gateway.web.page_messages import MOST_A_SECOND
from tests.links.board import until
from tests.links.certificates import Authority
from tests.service.wire import wire
from tests.web.page import OPERATOR, PASSWORD, USER, Browser, browser, page

ALL = "/api/messages?filter=%23"


@asynccontextmanager
async def events(
    client: Browser, path: str = "/api/events"
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    async def read() -> AsyncIterator[dict[str, Any]]:
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    async with client._http.get(client._url + path) as answer, asyncio.timeout(60):
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield read()


def test_the_page_is_small() -> None:
    folder = files("gateway.web").joinpath("static")
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 200_000


def test_page_loads_from_the_gateway_alone() -> None:
    for file in files("gateway.web").joinpath("static").iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name


async def test_page_shows_nothing_before_the_login(tmp_path: Path) -> None:
    async with page(tmp_path, ["roof-1"]) as shown, browser(shown.url) as client:
        assert await client.get("/api/me") == (200, {"user": None})
        for path in (
            "/api/events",
            "/api/board?name=roof-1",
            "/api/where?device=roof-1&sequence=1",
            "/api/site",
        ):
            assert (await client.get(path))[0] == 401
        body = {"device": "roof-1", "command": "identify"}
        assert (await client.post("/api/command", body))[0] == 401
        async with client._http.get(shown.url + "/") as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "roof-1" not in await answer.text()
        assert (await client.get("/../gateway.toml"))[0] == 404


async def test_session_cookie_is_hidden_from_scripts_and_other_sites(
    tmp_path: Path,
) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        body = {"user": USER, "password": PASSWORD}
        async with client._http.post(shown.url + "/api/login", json=body) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await client.get("/api/me"))[1]["user"] == USER
        assert PASSWORD not in "".join(shown.running.log)


async def test_change_is_accepted_only_from_the_page_itself(tmp_path: Path) -> None:
    body = {"device": "roof-1", "command": "identify"}
    async with page(tmp_path, ["roof-1"]) as shown, browser(shown.url) as client:
        foreign = {"Origin": "http://evil.example"}
        assert (await client.post("/api/login", {"user": USER, "password": PASSWORD}, **foreign))[
            0
        ] == 403
        await client.login(OPERATOR)
        assert (await client.post("/api/command", body, **foreign))[0] == 403
        assert (await client.post("/api/command", body, **{"X-Onceway": "guessed"}))[0] == 403
        assert (await client.post("/api/logout", {}, **{"X-Onceway": ""}))[0] == 403
        assert (await client.get("/api/me"))[1]["user"] == OPERATOR
        assert (await client.post("/api/logout", {}))[0] == 200
        assert await client.get("/api/me") == (200, {"user": None})


async def test_wrong_passwords_make_an_address_wait(tmp_path: Path) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        found = [await client.login(USER, "wrong") for _ in range(6)]
        assert found[:3] == [403] * 3
        assert found[-1] == 429
        assert await client.login(USER) == 429, "the right one waits, too"
        assert await client.login("nobody") == 403, "a name that is none is not told apart"
        assert await client.login(OPERATOR) == 200


async def test_a_session_ends_with_its_user(tmp_path: Path) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        await client.login()
        async with events(client) as news, events(client, ALL) as messages:
            await anext(news)
            await anext(messages)
            Users(tmp_path / "data" / "users").remove(USER)
            shown.running.process.send_signal(1)  # SIGHUP
            await shown.running.logged("read again")
            assert await client.get("/api/me") == (200, {"user": None})
            ended = [[event async for event in stream] for stream in (news, messages)]
        assert all("error" in event for event in ended[1])


async def test_without_users_the_page_says_what_to_do(tmp_path: Path) -> None:
    async with page(tmp_path, [], users=()) as shown, browser(shown.url) as client:
        status, found = await client.post("/api/login", {"user": "a", "password": "b"})
        assert status == 403
        assert "sudo onceway user add" in str(found["error"])


@pytest.mark.parametrize(
    "body", [[], {"user": 3, "password": "x"}, {"user": "a\0b", "password": "x"}, {}, "x" * 10_000]
)
async def test_malformed_request_is_refused_in_a_sentence(tmp_path: Path, body: object) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        status, found = await client.post("/api/login", body)
        assert 400 <= status < 500
        assert str(found["error"]).endswith(".")


async def test_operator_may_command_boards_and_a_viewer_may_not(tmp_path: Path) -> None:
    async with page(tmp_path, ["roof-1"]) as shown:
        (sensor,) = shown.sensors
        await sensor.measure(1.0)
        body = {"device": "roof-1", "command": "interval 60 min"}
        async with browser(shown.url) as client:
            await client.login(USER)
            status, found = await client.post("/api/command", body)
            assert (status, "may only look" in str(found["error"])) == (403, True)
            assert (await client.post("/api/board-log", {"device": "roof-1"}))[0] == 403
        async with browser(shown.url) as client, events(await operator(client)) as news:
            await anext(news)
            assert (await client.post("/api/board-log", {"device": "roof-2"}))[0] == 404
            status, found = await client.post("/api/command", body)
            assert (status, "no subscription" in str(found["error"])) == (409, True)
            await sensor.subscribe("commands/roof-1")
            for command in ("explode", "interval 99999", "identify\n", "interval 0 s"):
                wrong = {"device": "roof-1", "command": command}
                assert (await client.post("/api/command", wrong))[0] in (400, 409)
            assert (await client.post("/api/command", body | {"device": "roof-2"}))[0] == 404
            status, sent = await client.post("/api/command", body)
            assert (status, len(str(sent["to"]))) == (200, 2 * CORRELATION)
            await until(lambda: b"interval 60 min" in sensor.board.received)
            assert bytes.fromhex(str(sent["to"])) in sensor.board.received
            assert b"explode" not in sensor.board.received
        await shown.running.logged("the command 'interval 60 min' was sent for")


async def operator(client: Browser) -> Browser:
    assert await client.login(OPERATOR) == 200
    return client


async def test_page_receives_figures_as_they_change(tmp_path: Path) -> None:
    uplink = f'[uplink]\nlanding = "file://{tmp_path}/landing"\n'
    async with page(tmp_path, ["roof-1"], uplink) as shown, browser(shown.url) as client:
        (sensor,) = shown.sensors
        await client.login()
        async with events(client) as news:
            first = await anext(news)
            assert first["all"]
            assert first["overview"]["spool"]["waiting"] == 0
            (row,) = first["boards"]
            assert (row["name"], row["state"], row["last"]) == ("roof-1", "online", None)
            await sensor.measure(3.25)
            async for event in news:
                if event["boards"]:
                    break
            (row,) = event["boards"]
            assert (row["last"]["value"], row["per_hour"]) == (3.25, 1)
            assert 0 <= event["now"] - row["seen"] < 30e6
            while not (event.get("overview") or {}).get("spool", {}).get("waiting"):
                event = await anext(news)
            status, board = await client.get("/api/board?name=roof-1")
            assert status == 200
            (series,) = board["series"]
            assert series["points"] == [[series["time"], 3.25]]
            late = {-2: "roof-1:", -3: 1_767_225_600, 0: "adc0", 1: "V", 2: 1.5}
            await sensor.publish("sensors/roof-1/adc0", cbor2.dumps([late]))
            (series,) = (await client.get("/api/board?name=roof-1"))[1]["series"]
            assert [value for _, value in series["points"]] == [1.5, 3.25], "in the order of time"
            assert (await client.get("/api/board?name=roof-9"))[0] == 404

            where = "/api/where?device=roof-1&sequence=1"
            (place,) = (await client.get(where))[1]["places"]
            assert place["place"] == "spool"
            assert await shown.uplink() == 0
            (place,) = (await client.get(where))[1]["places"]
            assert (place["place"], place["batch"]) == ("landed", 1)
            assert (await client.get("/api/where?device=roof-1&sequence=9"))[1]["places"] == []
            for wrong in ("device=&sequence=1", "device=a&sequence=-1", "device=a&sequence=x"):
                assert (await client.get(f"/api/where?{wrong}"))[0] == 400
            while (event.get("overview") or {}).get("uplink", {}).get("messages") != 2:
                event = await anext(news)
            assert [item["part"] for item in event["overview"]["problems"]] == ["process"]

            sensor.unplug()
            while not (event["boards"] and event["boards"][0]["state"] == "offline"):
                event = await anext(news)


async def test_registry_is_changed_by_operators_alone_and_only_for_known_names(
    tmp_path: Path,
) -> None:
    async with (
        page(tmp_path, ["roof-1"], strangers=("roof-7",)) as shown,
        browser(shown.url) as client,
        asyncio.timeout(60),
    ):

        async def change(device: str, wanted: str) -> tuple[int, str]:
            body = {"device": device, "change": wanted}
            status, found = await client.post("/api/registry", body)
            return status, str(found.get("error", ""))

        async def told(*wanted: object) -> None:
            async for event in news:
                for row in event["boards"]:
                    if (row["name"], row["state"], row["registered"]) == ("roof-7", *wanted):
                        return

        assert (await change("roof-7", "admit"))[0] == 401
        await client.login(USER)
        async with events(client) as news:
            await told("pending", False)
            assert (await change("roof-7", "admit"))[0] == 403
            await client.login(OPERATOR)
            assert (await change("roof-7", "forget"))[0] == 400
            assert (await change("roof-9", "admit"))[0] == 404
            assert (await change("--help", "admit"))[0] == 404
            assert await change("roof-1", "admit") == (
                409,
                "roof-1 does not ask to be let in now. Plug the board in, then try again.",
            )
            assert await change("roof-1", "revoke") == (
                409,
                "roof-1 is not in the device registry.",
            )
            assert (await change("roof-7", "admit"))[0] == 200
            await shown.running.logged(f"roof-7: let in by '{OPERATOR}'")
            await told("online", True)
            assert (await change("roof-7", "revoke"))[0] == 200
            await told("revoked", False)
            (tmp_path / "data" / "registry.db").write_bytes(b"no database" * 100)
            status, why = await change("roof-7", "admit")
            assert (status, "not a device registry" in why) == (409, True)


async def test_message_view_obeys_access_rules_and_a_rate_limit(
    tmp_path: Path,
) -> None:
    rules = '[[acl]]\nwrite = ["#"]\nread = ["seen/#"]\nsubscribe = ["#"]\n'
    meter = Connect("meter", username=USER, password=PASSWORD.encode())
    async with page(tmp_path, ["roof-1"], rules) as shown, browser(shown.url) as client:
        assert (await client.get(ALL))[0] == 401
        await client.login(USER)
        async with events(client, ALL) as news, wire(shown.running.port, meter) as wired:
            assert (await anext(news))["watching"]
            wired.send(Publish("hidden/a", b"1", 1, 1), Publish("seen/a", b"2", 1, 2))
            (message,) = (await anext(news))["messages"]
            assert (message["topic"], message["kind"], message["text"]) == ("seen/a", "text", "2")
            many = 10 * MOST_A_SECOND  # as many as the page shows in ten seconds
            for number in range(many):
                wired.send(Publish("seen/many", str(number).encode()))
            came = []
            while not (event := await anext(news))["more"]:
                came += event["messages"]
            came += event["messages"]
            # the first two messages may belong to this second, and it may end early
            assert MOST_A_SECOND - 2 <= len(came) < many
            async for event in news:
                if any(item["topic"] == "seen/again" for item in event["messages"]):
                    break
                wired.send(Publish("seen/again", b"", 1, 9))
            body = {"client": (await sessions(client, "onceway-inside"))[0]["client"]}
            await client.login(OPERATOR)
            assert (await client.post("/api/end", body))[0] == 200
            while "error" not in (event := await anext(news)):
                pass
            assert event["error"] == "The gateway refuses the request: administrative action."
        for wrong, why in (
            ("a/%23/b", "not a topic filter"),
            ("%24share/g/a", "take messages away"),
        ):
            async with events(client, f"/api/messages?filter={wrong}") as news:
                event = await anext(news)
                assert why in event["error"]
                assert [event async for event in news] == [], "and it ends"
        async with asyncio.timeout(30):
            while await sessions(client, "onceway-inside"):
                pass


async def sessions(client: Browser, wanted: str) -> list[dict[str, Any]]:
    found: Any = (await client.get(f"/api/clients?wanted={wanted}"))[1]["sessions"]
    shown: list[dict[str, Any]] = found["shown"]
    return shown


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ('read = ["logs/#"]', "publish to commands/roof-1"),
        ('write = ["commands/#"]', "read logs/roof-1"),
        ('write = ["commands/#"]\nread = ["logs/#"]', "no subscription to its commands"),
    ],
)
async def test_operator_reads_board_logs_only_as_access_rules_allow(
    tmp_path: Path, rules: str, why: str
) -> None:
    rules = (
        f'[[acl]]\nusers = ["{OPERATOR}"]\n{rules}\n[[acl]]\nboards = true\nclients = ["roof-1"]\n'
    )
    rules += 'write = ["sensors/#"]\n'
    async with page(tmp_path, ["roof-1"], rules) as shown, browser(shown.url) as client:
        await shown.sensors[0].measure(1.0)
        await client.login(OPERATOR)
        status, found = await client.post("/api/board-log", {"device": "roof-1"})
    assert (status, why in str(found["error"])) == (409, True)


async def test_operator_publishes_only_what_access_rules_allow(tmp_path: Path) -> None:
    rules = f'[[acl]]\nusers = ["{OPERATOR}"]\nwrite = ["notes/#"]\nread = ["#"]\n'
    async with page(tmp_path, [], rules) as shown, browser(shown.url) as client:

        async def publish(topic: str, **more: object) -> tuple[int, str]:
            body = {"topic": topic, "payload": "é\n", "qos": 2, "retain": True} | more
            status, found = await client.post("/api/publish", body)
            return status, str(found.get("error", ""))

        assert (await publish("notes/a"))[0] == 401
        await client.login(USER)
        assert (await publish("notes/a"))[0] == 403
        await client.login(OPERATOR)
        assert (await publish("notes/a"))[0] == 200
        assert (await publish("notes/b", qos=1, retain=False))[0] == 200
        assert await publish("other/a") == (
            409,
            "The access rules do not let you publish to other/a.",
        )
        assert await publish("notes/#") == (409, "This is not a topic: it contains a wildcard.")
        assert (await publish("$SYS/a"))[0] == 409
        assert (await publish("notes/a", payload=7))[0] == 400
        assert (await publish("notes/a", qos=True))[0] == 400
        assert (await publish("notes/a", payload="x" * 9000))[0] == 413
        kept: Any = (await client.get("/api/clients"))[1]["retained"]
        assert [(item["topic"], item["size"]) for item in kept["shown"]] == [("notes/a", 3)]
        assert (await publish("notes/a", payload=""))[0] == 200
        assert not (await client.get("/api/clients"))[1]["retained"]["shown"]  # type: ignore[index]
        await shown.running.logged(f"'{OPERATOR}' has published to 'notes/a'")


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b"", "empty", ""),
        (b"on\n", "text", "on\n"),
        ("é".encode() * 1000, "text", "é" * 400),
        (b"x" + "é".encode() * 1000, "text", "x" + "é" * 399),
        ("é".encode()[:1], "bytes", "c3"),
        (b"\x00\xff", "bytes", "00 ff"),
        (b"\x1b[31m", "bytes", "1b 5b 33 31 6d"),
        (b"\xff" * 5000, "bytes", " ".join(["ff"] * 64)),
        (cbor2.dumps([{-2: "r:", 0: "t", 1: "Cel", 2: 21.5}, {0: "n", 3: "x"}]), "readings",
         "r:t = 21.5 Cel, r:n = x"),
    ],
)  # fmt: skip
def test_payload_is_shown_in_readable_form(payload: bytes, kind: str, text: str) -> None:
    assert payload_text("a/b", payload) == (kind, text)


async def test_clients_are_found_and_ended_by_an_operator_alone(tmp_path: Path) -> None:
    rules = '[[acl]]\nwrite = ["#"]\nread = ["seen/#"]\n'
    login = {"username": USER, "password": PASSWORD.encode()}
    async with page(tmp_path, ["roof-1"], rules) as shown, browser(shown.url) as client:
        async with wire(shown.running.port, Connect("meter", **login)) as meter:
            for number, topic in enumerate(("seen/a", "hidden/b"), 1):
                meter.send(Publish(topic, b"7", 1, number, retain=True))
                await meter.take(Puback)
            assert (await client.get("/api/clients"))[0] == 401
            await client.login(USER)
            (session,) = (await client.get("/api/clients?wanted=METER"))[1]["sessions"]["shown"]
            assert (session["client"], session["user"], session["connected"]) == (
                "meter",
                USER,
                True,
            )
            assert (await client.get("/api/clients?wanted=nobody"))[1]["sessions"]["shown"] == []
            everything = (await client.get("/api/clients"))[1]
            kept = {"topic": "seen/a", "qos": 1, "size": 1, "kind": "text", "text": "7"}
            assert everything["retained"]["shown"] == [kept]
            assert (await client.post("/api/end", {"client": "meter"}))[0] == 403
            await client.login(OPERATOR)
            assert (await client.post("/api/end", {"client": "nobody"}))[0] == 404
            assert (await client.post("/api/end", {"client": "meter"}))[0] == 200
            assert (await meter.take(Disconnect)).reason == 0x98
        await shown.running.logged("was ended by")


async def test_operators_read_the_log(tmp_path: Path) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        await client.login(USER)
        assert (await client.get("/api/log"))[0] == 403
        await client.login(USER, "wrong")
        await client.login(OPERATOR)
        status, found = await client.get("/api/log?wanted=LOGGED%20IN")
        assert status == 200
        assert [line["level"] for line in found["lines"]] == ["info", "info"]
        assert PASSWORD not in str(found)
        last = found["last"]
        assert (await client.get(f"/api/log?after={last}"))[1] == {"lines": [], "last": last}
        assert (await client.get("/api/log?level=error"))[1]["lines"] == []
        assert (await client.get("/api/log?after=-1"))[0] == 400


def test_the_log_keeps_the_last_lines_and_breaks_none() -> None:
    lines = LogLines()
    for number in range(MOST + 5):
        lines.handle(logging.makeLogRecord({"msg": f"line {number}", "levelname": "INFO"}))
    lines.handle(logging.makeLogRecord({"msg": "a\nb" + "c" * 1000, "levelname": "WARNING"}))
    lines.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",), "levelname": "INFO"}))
    found = lines.after(0, "", "info")
    assert (len(found["lines"]), found["last"]) == (MOST, MOST + 6)
    (last,) = lines.after(0, "", "warning")["lines"]
    assert last["text"].startswith("a\\x0ab")
    assert len(last["text"]) == 500
    assert [line["text"] for line in lines.after(0, "LINE 7", "info")["lines"]][:1] == ["line 7"]


async def test_viewer_beyond_the_limit_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async with page(tmp_path, []) as shown, browser(shown.url) as client:
        await client.login()
        streams = [await client._http.get(shown.url + "/api/events") for _ in range(16)]
        assert (await client.get("/api/events"))[0] == 503
        for stream in streams:
            stream.close()
        async with asyncio.timeout(30):
            while True:
                async with client._http.get(shown.url + "/api/events") as answer:
                    if answer.status == 200:
                        break


async def test_a_page_with_a_certificate_speaks_https(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    text = f'certificate = "{certificate}"\nkey = "{key}"\n'
    async with page(tmp_path, [], text) as shown:
        assert shown.url.startswith("https://")
        async with aiohttp.ClientSession() as http:
            body = {"user": USER, "password": PASSWORD}
            async with http.post(shown.url + "/api/login", json=body, ssl=False) as answer:
                assert answer.status == 200
                assert "Secure" in answer.headers["Set-Cookie"]


def test_public_page_without_encryption_is_warned_about() -> None:
    assert advice(parse({"page": {}}, "here")) == []
    (text,) = advice(parse({"page": {"bind": ":8080"}}, "here"))
    assert "unencrypted" in text
    with pytest.raises(Exception, match="both certificate and key"):
        parse({"page": {"key": "/k.pem"}}, "here")
