"""The gateway accepts a password that was correct a moment ago without comparing it again, even
after a reload.
"""

from pathlib import Path

import pytest

from gateway.access.authentication import Passwords
from gateway.access.users import Users
from gateway.config import AccessSection

HOOK = {"command": ["/bin/true"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    users = Users(tmp_path / "users")
    for name in ("alice", "bob", "carol"):
        users.add(name, f"{name}'s")
    return users.path


def found_correct(file: Path, **section: object) -> Passwords:
    passwords = Passwords(Users(file), AccessSection(**section))
    for name in ("alice", "bob", "carol", *(["dave"] if section else [])):
        assert passwords.wrong(name, f"{name}'s".encode(), "c", "10.0.0.1", ":1883") is None
        assert passwords.known(name, f"{name}'s".encode())
    return passwords


def known(passwords: Passwords) -> list[str]:
    names = ("alice", "bob", "carol", "dave")
    assert not any(passwords.known(name, b"another") for name in names)
    return [name for name in names if passwords.known(name, f"{name}'s".encode())]


def test_unchanged_users_do_not_wait_after_a_reload(file: Path) -> None:
    before = found_correct(file)
    users = Users(file)
    users.add("bob", "new")
    users.remove("carol")
    after = Passwords(Users(file), AccessSection(), before)
    assert known(after) == ["alice"]
    assert known(Passwords(Users(file), AccessSection(), after)) == ["alice"], "nor after the next"


@pytest.mark.parametrize(
    ("later", "remembered"),
    [
        (HOOK, ["alice", "bob", "carol", "dave"]),
        (HOOK | {"hook_timeout_s": 1.0}, ["alice", "bob", "carol", "dave"]),
        ({"command": ["/bin/false"]}, ["alice", "bob", "carol"]),
        (HOOK | {"hook_remember_s": 0.0}, ["alice", "bob", "carol"]),
        ({}, ["alice", "bob", "carol"]),
    ],
    ids=str,
)
def test_hook_answers_count_while_the_hook_is_unchanged(
    file: Path, later: dict[str, object], remembered: list[str]
) -> None:
    before = found_correct(file, **HOOK)
    assert known(Passwords(Users(file), AccessSection(**later), before)) == remembered


def test_user_moved_from_the_hook_to_the_file_is_checked_again(file: Path) -> None:
    before = found_correct(file, **HOOK)
    Users(file).add("dave", "dave's")
    after = Passwords(Users(file), AccessSection(**HOOK), before)
    assert known(after) == ["alice", "bob", "carol"]
