"""Findings of `check-config` about access rules: users, boards and anonymous clients that can
publish nothing, and boards that cannot send readings or receive commands.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.access.dry_run import mistakes, takes_anonymous
from gateway.access.users import Users
from gateway.boards.admission import FILE
from gateway.config import AclSection, Config
from gateway.service.cli import app
from provisioning.registry import Registry


@pytest.mark.parametrize(
    ("section", "users", "boards"),
    [
        ({"write": ["sensors/%u/#"]}, [], []),
        ({"users": ["alice"], "write": ["#"]}, ["bob"], []),
        ({"users": ["alice"], "read": ["#"]}, ["alice", "bob"], []),
        ({"users": ["*", ""], "write": ["sensors/%u/#"]}, [], ["roof-1", "roof-2"]),
        ({"boards": True, "clients": ["roof-1"], "write": ["#"]}, [], ["roof-2"]),
        ({"boards": True, "write": ["#"], "deny_write": ["#"]}, [], ["roof-1", "roof-2"]),
        ({"users": ["*"], "write": ["a/#"], "deny_write": ["a/#", "b"]}, ["alice", "bob"], []),
        ({"users": ["*"], "write": ["a/#", "c"], "deny_write": ["a/#"]}, [], []),
        ({"users": ["bob"], "deny_write": ["#"]}, ["bob"], []),
        ({"clients": ["phone-*"], "write": ["sensors/#"]}, [], []),
    ],
    ids=str,
)
def test_users_without_write_access_are_named(
    section: dict[str, object], users: list[str], boards: list[str]
) -> None:
    sections = [AclSection.model_validate(section)]
    told = "\n".join(mistakes(sections, ["alice", "bob"], ["roof-1", "roof-2"]))
    silent = [line for line in told.splitlines() if "can publish nothing" in line]
    for name in ("alice", "bob"):
        assert any(name in line for line in silent) == (name in users)
    for name in ("roof-1", "roof-2"):
        assert any(name in line for line in silent) == (name in boards)


@pytest.mark.parametrize(
    ("section", "lost", "deaf"),
    [
        ({"write": ["sensors/%c/#"], "read": ["commands/%c"]}, [], []),
        ({"write": ["#"], "read": ["commands/#"]}, [], []),
        ({"write": ["sensors/%c/temperature"], "read": ["commands/+"]}, [], []),
        ({"write": ["+/+/temperature/#"], "read": ["#"]}, [], []),
        ({"write": ["sensors/#"], "deny_write": ["sensors/+/adc0"], "read": ["#"]}, [], []),
        ({"write": ["sensor/%c/#"], "read": ["#"]}, ["roof-1", "roof-2"], []),
        ({"write": ["sensors/roof-1/#"], "read": ["#"]}, ["roof-2"], []),
        ({"write": ["#"], "deny_write": ["sensors/#"], "read": ["#"]}, ["roof-1", "roof-2"], []),
        ({"deny_write": ["sensors/roof-1/#"]}, ["roof-1"], []),
        ({"write": ["#"]}, [], ["roof-1", "roof-2"]),
        ({"write": ["#"], "read": ["command/%c"]}, [], ["roof-1", "roof-2"]),
        ({"deny_read": ["commands/roof-2"]}, [], ["roof-2"]),
    ],
    ids=str,
)
def test_boards_that_cannot_send_readings_or_hear_commands_are_named(
    section: dict[str, object], lost: list[str], deaf: list[str]
) -> None:
    sections = [AclSection.model_validate({"boards": True} | section)]
    told = mistakes(sections, [], ["roof-1", "roof-2"])
    for words, names in (("below sensors/NAME/", lost), ("commands/NAME", deaf)):
        assert [line for line in told if words in line and all(name in line for name in names)] == [
            line for line in told if words in line
        ]
        assert any(words in line for line in told) is bool(names)
        for name in {"roof-1", "roof-2"} - set(names):
            assert not any(name in line for line in told if words in line)


@pytest.mark.parametrize(
    ("listener", "section", "told"),
    [
        ({}, {"write": ["sensors/%u/#"]}, True),
        ({}, {"users": ["alice"], "write": ["#"]}, True),
        ({}, {"users": ["*"], "write": ["sensors/#"]}, False),
        ({}, {"users": [""], "write": ["sensors/#"]}, False),
        ({"anonymous": False}, {"users": ["alice"], "write": ["#"]}, False),
        ({"bind": ":1883"}, {"users": ["alice"], "write": ["#"]}, False),
        ({"bind": ":1883", "anonymous": True}, {"users": ["alice"], "write": ["#"]}, True),
    ],
    ids=str,
)
def test_clients_without_a_name_are_tried_where_they_are_accepted(
    listener: dict[str, object], section: dict[str, object], told: bool
) -> None:
    tables = {"listener": [{"bind": "127.0.0.1:1883"} | listener], "acl": [section]}
    config = Config.model_validate(tables)
    anonymous = takes_anonymous(config, [])
    found = mistakes(config.acl, [], [], anonymous=anonymous)
    assert any("without a user name" in line for line in found) is told
    if "bind" not in listener:
        assert not takes_anonymous(config, ["alice"])


def test_rules_that_stop_only_users_are_reported() -> None:
    assert "boards = true" in mistakes([AclSection(deny_write=["admin/#"])], [], [])[0]
    assert mistakes([AclSection(users=["bob"], deny_write=["admin/#"])], [], []) == []


def test_check_config_tries_each_known_user(tmp_path: Path) -> None:
    registry = Registry(tmp_path / FILE)
    registry.admit("roof-1")
    users = tmp_path / "users"
    Users(users).add("bob", "correct horse")
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"[[listener]]\nbind = '127.0.0.1:1883'\n[gateway]\ndata = '{tmp_path}'\n"
        "[[acl]]\nusers = ['alice']\nboards = true\nwrite = ['sensors/%u/#']\n"
    )
    done = CliRunner().invoke(app, ["check-config", "--config", str(file)])
    assert done.exit_code == 0, done.output
    assert "board roof-1 can publish nothing" in done.output
    assert "user bob can publish nothing" in done.output
