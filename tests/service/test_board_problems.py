"""Every view of the gateway shows a silent board, with its cause."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from gateway.access.users import Users
from gateway.commands.control_client import ask
from gateway.mqtt.packets import Connect, Publish, Suback, Subscribe, Subscription
from gateway.service.status_cli import _lines
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import gateway, start
from tests.service.wire import wire
from tests.web.page import OPERATOR, PASSWORD, Browser
from tests.web.page import address as page_address
from tests.web.test_web import address as web_address

IMPATIENT = (
    "-c",
    "from gateway.boards import expected; expected.LEAST_S = expected.UNKNOWN_S = 1.0;"
    " from gateway.commands.main import main; main()",
)
KEY, OTHER = bytes(range(16)), bytes(range(1, 17))
CAUSES = {"silent": "roof-1", "unplugged": "roof-2", "refused": "roof-3"}
FINE = "roof-4"
ALERTS = Path(__file__).parents[2] / "gateway/web/prometheus/alerts.yml"
MORE = """
[web]
bind = "127.0.0.1:0"
[page]
bind = "127.0.0.1:0"
operators = ["otto"]
[home_assistant]
"""


@dataclass
class Site:
    """A gateway with a board for each cause of silence, and one that works. port: port of the MQTT
    listener. page: URL of the page. web: URL of the metrics.
    """

    file: Path
    data: Path
    port: int
    page: str
    web: str
    printed: dict[tuple[str, ...], tuple[int, str]] = field(default_factory=dict)
    """Exit code and output of each command, so that each is run only once."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    data = folder / "data"
    data.mkdir()
    registry = Registry(data / "registry.db")
    names = [*CAUSES.values(), FINE]
    for name in names:
        registry.finish(registry.begin(Identity(name, KEY), "uno", "/dev/null"), "ab" * 32)
    Users(data / "users").add(OPERATOR, PASSWORD)
    lines = {name: Pty() for name in names}
    file = configuration(folder, list(lines.values()), MORE)
    text = file.read_text().replace("[[listener]]", "[[listener]]\nanonymous = true")
    file.write_text(text)
    running = await start("--config", str(file), program=IMPATIENT)
    await running.ready()
    sensors = {name: Sensor(lines[name], name, KEY) for name in names if name != "roof-3"}
    stranger = Sensor(lines["roof-3"], "roof-3", OTHER)
    for sensor in sensors.values():
        await sensor.connect()
        await sensor.measure(3.25)
    await asyncio.to_thread(ask, data, do="expect", client="roof-1", interval="1s")
    sensors["roof-2"].unplug()
    made = Site(file, data, running.port, await page_address(running), await web_address(running))
    async with asyncio.timeout(60), wire(made.port, Connect("waits")) as client:
        client.send(Subscribe(1, [Subscription("readings/#", 0)]))
        await client.take(Suback)
        told: dict[str, bytes] = {}
        while not _all_told(told):
            packet = await client.take(Publish)
            told[packet.topic] = packet.payload
    yield made
    for name, sensor in (sensors | {"roof-3": stranger}).items():
        if name != "roof-2":
            sensor.unplug()
    assert await running.end() == 0


def _all_told(told: dict[str, bytes]) -> bool:
    """Return whether the mirror and Home Assistant show all problems. told: retained messages."""
    offline = [told.get(f"readings/{CAUSES[cause]}/$state") for cause in ("silent", "unplugged")]
    problems = json.loads(told.get("readings/$gateway", b"{}")).get("problems", [])
    names = {text.partition(":")[0] for text in problems}
    return offline == [b"offline", b"offline"] and names >= set(CAUSES.values())


async def _command(site: Site, *words: str) -> tuple[int, str]:
    if words in site.printed:
        return site.printed[words]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *words, "--config", str(site.file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    site.printed[words] = process.returncode, out.decode()
    return site.printed[words]


async def _get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def _retained(site: Site, topic: str) -> str:
    async with wire(site.port, Connect("looks")) as client:
        client.send(Subscribe(1, [Subscription(topic, 0)]))
        await client.take(Suback)
        return (await client.take(Publish)).payload.decode()


async def page_says(site: Site, name: str) -> bool:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        browser = Browser(site.page, http)
        await browser.post("/api/login", {"user": OPERATOR, "password": PASSWORD})
        event = await browser.hear("/api/events", b'"all": true')
    found = json.loads(event.removeprefix(b"data: "))
    (row,) = [row for row in found["boards"] if row["name"] == name]
    told = [one for one in found["overview"]["problems"] if one["what"].startswith(f"{name}:")]
    assert bool(told) == (row["problem"] is not None) == (row["state"] in CAUSES)
    assert all(one["todo"] for one in told)
    return bool(told)


async def gateway_status_says(site: Site, name: str) -> bool:
    code, text = await _command(site, "gateway", "status")
    assert code == 3
    return f"problem with the boards: {name}:" in text


async def status_says(site: Site, name: str) -> bool:
    code, text = await _command(site, "status")
    assert code == 3
    assert text.index("! ") < text.index("roof-4"), "problems come first"
    return f"! {name}:" in text


async def doctor_says(site: Site, name: str) -> bool:
    code, text = await _command(site, "doctor")
    assert code == 1
    return f"gateway: boards: {name}:" in text


async def metrics_say(site: Site, name: str) -> bool:
    _, text = await _get(f"{site.web}/metrics")
    assert 'onceway_boards_expected{state="fine"} 1.0' in text
    return f'onceway_board_problem{{cause="{_cause(name)}",device="{name}"}} 1.0' in text


async def whole_status_says(site: Site, name: str) -> bool:
    code, text = await _get(f"{site.web}/status")
    assert code == 200
    return any(one["what"].startswith(f"{name}:") for one in json.loads(text)["problems"])


async def home_assistant_says(site: Site, name: str) -> bool:
    found = json.loads(await _retained(site, "readings/$gateway"))
    return any(text.startswith(f"{name}:") for text in found["problems"])


async def availability_says(site: Site, name: str) -> bool:
    if name == CAUSES["refused"]:
        return True  # Home Assistant does not know a board that never sent anything
    return await _retained(site, f"readings/{name}/$state") == "offline"


def _cause(name: str) -> str:
    return next((cause for cause, board in CAUSES.items() if board == name), "")


OUTLETS: list[Callable[[Site, str], Awaitable[bool]]] = [
    page_says,
    gateway_status_says,
    status_says,
    doctor_says,
    metrics_say,
    whole_status_says,
    home_assistant_says,
    availability_says,
]


@pytest.mark.parametrize("outlet", OUTLETS, ids=lambda outlet: outlet.__name__)
@pytest.mark.parametrize("cause", [*CAUSES, "none"])
@pytest.mark.asyncio(loop_scope="module")
async def test_each_outlet_shows_each_board_that_is_a_problem_and_no_other(
    site: Site, outlet: Callable[[Site, str], Awaitable[bool]], cause: str
) -> None:
    name = CAUSES.get(cause, FINE)
    assert await outlet(site, name) == (cause != "none")


@pytest.mark.asyncio(loop_scope="module")
async def test_boards_do_not_make_the_gateway_itself_unhealthy(site: Site) -> None:
    code, text = await _get(f"{site.web}/healthz")
    parts = [one["part"] for one in json.loads(text)["problems"]]
    assert (code, parts) in ((200, []), (503, ["serial"])), "its unplugged port is the gateway's"
    _, text = await _get(f"{site.web}/metrics")
    assert f"onceway_healthy {float(code == 200)}" in text


@pytest.mark.asyncio(loop_scope="module")
async def test_alert_of_a_board_uses_an_existing_metric(site: Site) -> None:
    rules = ALERTS.read_text()
    assert "expr: onceway_board_problem == 1" in rules
    _, text = await _get(f"{site.web}/metrics")
    assert text.count("onceway_board_problem{") == len(CAUSES)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_port_of_a_silent_board_does_not_look_like_that_of_a_good_one(
    site: Site,
) -> None:
    _, text = await _command(site, "gateway", "status")
    assert re.search(r"^port .*: roof-1 is silent, last heard .* ago$", text, re.M)
    assert re.search(r"^port .*: roof-4, last heard .* ago$", text, re.M)
    _, status = await _get(f"{site.web}/status")
    ports = {row["device"]: row for row in json.loads(status)["ports"]}
    assert (ports["roof-1"]["state"], ports["roof-4"]["state"]) == ("silent", "fine")
    assert ports["roof-1"]["heard_s"] > 0


def test_status_shows_each_port_with_a_trouble_once() -> None:
    """A port with an unregistered board is shown, but does not count as a problem of the
    gateway.
    """
    ports = {"/dev/ttyA": None, "/dev/ttyB": "a stranger asks", "/dev/ttyC": "is busy"}
    found = {
        "problems": [{"what": "/dev/ttyC: is busy", "todo": "Stop that program"}],
        "gateway": "site-1",
        "version": "1",
        "boards": [],
        "ports": [{"port": path, "problem": problem} for path, problem in ports.items()],
        "spool": {"messages": 0, "bytes": 0},
        "uplink": None,
    }
    shown = "\n".join(_lines(found))
    assert "ttyA" not in shown
    assert shown.count("port /dev/ttyB: a stranger asks") == 1
    assert shown.count("/dev/ttyC") == 1


async def test_second_board_of_one_name_is_a_problem_until_it_is_gone(tmp_path: Path) -> None:
    """The first board has the registered key and works. The gateway refuses the second board."""
    data = tmp_path / "data"
    data.mkdir()
    with closing(Registry(data / "registry.db")) as registry:
        registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/null"), "ab" * 32)
    lines = [Pty(), Pty()]
    async with gateway(data, "--config", str(configuration(tmp_path, lines))):
        sensor = Sensor(lines[0], "roof-1", KEY)
        await sensor.connect()
        await sensor.measure(3.25)
        assert await _verdict(data) == ([], "fine")
        second = Sensor(lines[1], "roof-1", OTHER)
        (problem,), state = await _verdict_with(data, 1)
        assert (problem["part"], state) == ("boards", "fine")
        assert problem["what"].startswith("roof-1: a second board with this name is refused at")
        assert lines[1].path in problem["todo"]
        second.unplug()
        await _verdict_with(data, 0)
        sensor.unplug()


async def _verdict_with(data: Path, count: int) -> tuple[list[dict[str, str]], str]:
    """Wait until the gateway has `count` problems of boards. Return all problems and the board's
    state.
    """
    for _ in range(600):
        found, state = await _verdict(data)
        if len([one for one in found if one["part"] == "boards"]) == count:
            return found, state
        await asyncio.sleep(0.1)
    raise AssertionError(found)


async def _verdict(data: Path) -> tuple[list[dict[str, str]], str]:
    (row,) = await asyncio.to_thread(ask, data, do="everything")
    return row["problems"], row["boards"][0]["state"]
