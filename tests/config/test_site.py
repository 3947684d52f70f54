"""`[site]`: what its keys do, and which values are refused."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import Config, ConfigError, parse, split_address

MEMBERS = {"attic": "10.0.0.1:8884", "barn": "barn.local:8884"}


def site(**keys: Any) -> Config:
    values = {"members": MEMBERS} | keys
    return parse({"gateway": {"name": "attic", "data": "/data"}, "site": values}, "test")


def test_defaults_of_the_site_section() -> None:
    config = site()
    assert config.site_bind == ("", 8884)
    assert config.site_folder == Path("/data/site")
    config = site(bind="[::1]:9000", folder="/etc/onceway/site")
    assert config.site_bind == ("::1", 9000)
    assert config.site_folder == Path("/etc/onceway/site")
    assert parse({"gateway": {"data": "/data"}}, "test").site_folder == Path("/data/site")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"members": {"barn": "10.0.0.2:1"}}, "lacks this gateway itself: 'attic'"),
        ({"members": {}}, "site.members"),
        ({"members": MEMBERS | {"x": "10.0.0.2"}}, "must be HOST:PORT"),
        ({"members": MEMBERS | {"x": ":8884"}}, "must be HOST:PORT"),
        ({"members": MEMBERS | {"x": "a b:8884"}}, "is not the name of a machine"),
        ({"members": MEMBERS | {"x": "h:70000"}}, "must be HOST:PORT"),
        ({"members": MEMBERS | {"a/b": "h:1"}}, "folder name"),
        ({"members": MEMBERS | {"é" * 40: "h:1"}}, "64 bytes"),
        ({"members": MEMBERS | {f"m{n}": "h:1" for n in range(20)}}, "site.members"),
        ({"members": MEMBERS | {"x": MEMBERS["barn"]}}, "two members have the address"),
        ({"member": {}}, "Did you mean 'members'?"),
    ],
)
def test_invalid_site_section_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        site(**keys)
    assert words in str(caught.value)


def test_two_sections_cannot_have_one_address() -> None:
    with pytest.raises(ConfigError, match=r"two sections have the bind '127.0.0.1:8884'"):
        parse(
            {
                "gateway": {"name": "attic"},
                "listener": [{"bind": "127.0.0.1:8884"}],
                "site": {"members": MEMBERS, "bind": "127.0.0.1:8884"},
            },
            "test",
        )


def test_addresses() -> None:
    assert split_address("[fe80::1]:8884") == ("fe80::1", 8884)
    assert split_address("attic.local:1") == ("attic.local", 1)
