"""The gateway puts the list of devices into the spool, even if the configuration spools no
topic.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.access.rules import Acl
from gateway.boards import device_list
from gateway.boards.admission import FILE
from gateway.boards.admission import Registry as Boards
from gateway.config import DEVICES_TOPIC, INSIDE, Config
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import until
from tests.service.process import free_port, gateway

KEY = bytes(range(16))
UPLINK = '[uplink]\nlanding = "{folder}/landing"\n[spool]\ntopics = ["sensors/#"]\n'


class Site:
    """The folder of a gateway, with its configuration and registry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.path = folder / "gateway.toml"
        self.registry = Registry(self.data / FILE)
        self.write(UPLINK)

    def write(self, *parts: str) -> None:
        self.path.write_text(
            f'[gateway]\nname = "site"\ndata = "{self.data}"\ntrust_clock = true\n'
            f'[[listener]]\nbind = "127.0.0.1:{free_port()}"\nanonymous = true\n'
            + "".join(parts).format(folder=self.folder)
        )

    def add(self, name: str, board: str = "uno") -> None:
        begun = self.registry.begin(Identity(name, KEY), board, "/dev/ttyACM0")
        self.registry.finish(begun, "ab" * 32)

    def lists(self) -> list[list[dict[str, Any]]]:
        """Return all lists of devices in the spool, oldest first."""
        with closing(sqlite3.connect(f"file:{self.data}/gateway.db?mode=ro", uri=True)) as store:
            rows = store.execute(
                "SELECT payload FROM spool WHERE topic = 'onceway/devices' ORDER BY id"
            )
            return [json.loads(payload) for (payload,) in rows]

    def names(self) -> list[list[str]]:
        return [[row["name"] for row in rows] for rows in self.lists()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_the_list_goes_up_at_the_start_and_after_a_change_and_not_at_a_restart(
    site: Site,
) -> None:
    site.add("roof-1", "nano")
    async with gateway(site.data, "--config", str(site.path)):
        await until(lambda: site.names() == [["roof-1"]])
        site.add("roof-2")
        await until(lambda: site.names() == [["roof-1"], ["roof-1", "roof-2"]])
        await until(lambda: json.loads((site.data / device_list.FILE).read_text())["row"] == 2)
    assert site.lists()[0] == [
        {"name": "roof-1", "board": "nano", "port": "/dev/ttyACM0", "firmware": "ab" * 32}
    ]
    async with gateway(site.data, "--config", str(site.path)):
        site.add("roof-3")
        await until(lambda: ["roof-1", "roof-2", "roof-3"] in site.names())
    assert len(site.names()) == 3


async def test_a_list_of_yesterday_goes_up_again(site: Site) -> None:
    site.add("roof-1")
    async with gateway(site.data, "--config", str(site.path)):
        await until((site.data / device_list.FILE).exists)
    told = site.data / device_list.FILE
    last = json.loads(told.read_text())
    told.write_text(json.dumps(last | {"time": last["time"] - device_list.DAY_S}))
    async with gateway(site.data, "--config", str(site.path)):
        await until(lambda: site.names() == [["roof-1"], ["roof-1"]])


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "\0", '{"time": "x"}', '{"time": null}', '{"row": []}']
)
async def test_a_damaged_note_of_the_last_list_costs_one_list(site: Site, content: str) -> None:
    site.add("roof-1")
    (site.data / device_list.FILE).write_text(content)
    async with gateway(site.data, "--config", str(site.path)):
        await until(lambda: site.names() == [["roof-1"]])


async def test_without_an_uplink_no_list_is_published_and_with_a_new_one_it_is(site: Site) -> None:
    site.add("roof-1")
    site.write()
    async with gateway(site.data, "--config", str(site.path)) as running:
        site.write(UPLINK)
        assert not site.names()
        running.process.send_signal(1)
        await until(lambda: site.names() == [["roof-1"]])


async def test_an_access_rule_of_the_owner_does_not_keep_the_list_back(site: Site) -> None:
    site.add("roof-1")
    site.write(UPLINK, '[[acl]]\nusers = ["*"]\nwrite = ["sensors/#"]\n')
    async with gateway(site.data, "--config", str(site.path)):
        await until(lambda: site.names() == [["roof-1"]])


async def test_a_list_that_is_refused_is_reported_with_its_reason(site: Site) -> None:
    site.add("roof-1")
    site.write(UPLINK, '[[acl]]\ndeny_write = ["onceway/#"]\n')
    async with gateway(site.data, "--config", str(site.path)) as running:
        await until(lambda: any("list of devices was not stored" in line for line in running.log))
        assert "not authorized" in "".join(running.log)
    assert not site.names()


@pytest.mark.parametrize(
    "section",
    [
        {"boards": True, "write": ["sensors/#"]},
        {"users": ["alice"], "read": ["a"]},
        {"users": ["alice"], "write": ["a"]},
        {"users": ["alice"], "subscribe": ["a/#"]},
        {"users": ["alice"], "identity": ["*"]},
        {"users": ["alice"]},
        {"clients": ["x"], "read": ["a"]},
        {"deny_write": ["a/#"]},
        {"deny_read": ["a/#"]},
    ],
)
def test_no_kind_of_section_keeps_the_list_back(section: dict[str, Any]) -> None:
    config = Config.model_validate({"acl": [section], "uplink": {"landing": "/x"}})
    assert Acl(config.acl).may_write(INSIDE, "onceway-inside-1", DEVICES_TOPIC)
    assert Acl(config.acl).may_read(INSIDE, "onceway-inside-1", "logs/roof-1")


async def test_a_list_that_becomes_a_day_old_while_the_gateway_runs_goes_up_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_list, "LOOK_S", 0.01)
    now_s = 2_000_000_000
    published: list[str] = []

    async def publish(self: device_list.DeviceList, text: str) -> bool:
        published.append(text)
        self._note(text)
        return True

    monkeypatch.setattr(device_list.DeviceList, "_publish", publish)
    site.add("roof-1")
    broker = SimpleNamespace(
        config=SimpleNamespace(spooled=[DEVICES_TOPIC]), spool=SimpleNamespace(next=1)
    )
    registry = Boards(site.data)
    registry.refresh()
    with closing(
        device_list.DeviceList(
            cast(Any, SimpleNamespace(broker=broker)), registry, site.data, lambda: now_s * 10**6
        )
    ):
        await until(lambda: len(published) == 1)
        now_s += device_list.DAY_S  # `now_s` is the time of the lambda above
        await until(lambda: len(published) == 2)


async def test_a_store_that_is_made_again_gets_the_list(site: Site) -> None:
    site.add("roof-1")
    async with gateway(site.data, "--config", str(site.path)):
        await until((site.data / device_list.FILE).exists)
    for file in site.data.glob("gateway.db*"):
        file.unlink()
    async with gateway(site.data, "--config", str(site.path)):
        await until(lambda: site.names() == [["roof-1"]])
