"""Login sessions of the page: when they end, and how many there may be."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.access.authentication import Passwords
from gateway.access.hook import WRONG, AuthHook
from gateway.access.logins import ALIKE_S
from gateway.access.users import Users
from gateway.config import AccessSection
from gateway.web import page_logins
from gateway.web.page_logins import (
    IDLE_S,
    LONGEST_S,
    MOST_OF_ONE,
    MOST_SESSIONS,
    MOST_WAITING,
    PageLogins,
)

PASSWORD = "correct horse"


@pytest.fixture
def users(tmp_path: Path) -> Users:
    found = Users(tmp_path / "users")
    found.add("lena", PASSWORD)
    return found


@pytest.fixture
def logins(users: Users) -> Iterator[PageLogins]:
    passwords = Passwords(users, AccessSection())
    yield (made := PageLogins(lambda: passwords, ["le*"]))
    made.close()


async def log_in(logins: PageLogins) -> str:
    token = await logins.login("lena", PASSWORD, "127.0.0.1")
    assert isinstance(token, str)
    return token


class Clock:
    """A clock for the event loop, `ahead` seconds ahead of the true one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real, self.ahead = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self.ahead)


async def test_page_session_ends_after_twelve_hours_without_a_request(
    logins: PageLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, clock = await log_in(logins), Clock(monkeypatch)
    assert (found := logins.session(token)) is not None
    assert (found.user, found.operator) == ("lena", True)
    clock.ahead += IDLE_S - 1
    assert logins.session(token) is not None
    clock.ahead += IDLE_S - 1
    assert logins.session(token) is not None, "each look counts"
    clock.ahead += IDLE_S + 1
    assert logins.session(token) is None


async def test_page_session_ends_after_a_week_despite_requests(
    logins: PageLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, clock = await log_in(logins), Clock(monkeypatch)
    while clock.ahead < LONGEST_S - IDLE_S:
        clock.ahead += IDLE_S / 2
        assert logins.session(token) is not None
    clock.ahead += IDLE_S
    assert logins.session(token) is None


async def test_the_oldest_session_makes_room_for_a_new_one(
    logins: PageLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_logins, "MOST_SESSIONS", 2)
    first, second, third = [await log_in(logins) for _ in range(3)]
    assert logins.session(first) is None
    assert logins.session(second) is not None
    assert logins.session(third) is not None
    assert logins.session(None) is None


async def test_queue_for_password_comparisons_is_bounded(logins: PageLogins) -> None:
    tries = [logins.login(f"user-{n}", "wrong", f"10.0.0.{n}") for n in range(MOST_WAITING + 3)]
    answers = await asyncio.gather(*tries)
    assert [answer[0] for answer in answers].count(503) == 3
    assert [answer[0] for answer in answers].count(403) == MOST_WAITING


async def test_one_address_waits_after_many_wrong_passwords_for_many_users(
    logins: PageLogins,
) -> None:
    answers = [await logins.login(f"user-{n}", "wrong", "10.0.0.1") for n in range(23)]
    assert answers[0][0] == 403
    assert answers[-1][0] == 429
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.2"), str), "others do not wait"


async def test_guesses_of_other_names_keep_no_new_user_of_the_address_out(
    logins: PageLogins, users: Users
) -> None:
    users.add("otto", PASSWORD)
    loop = asyncio.get_running_loop()
    for number in range(21):
        await logins.login(f"user-{number}", "wrong", "10.0.0.1")
    for name in ("otto", "nobody", "otto"):
        begun = loop.time()
        answer = await logins.login(name, "wrong", "10.0.0.1")
        assert answer[0] == 429, "no answer tells which names exist"
        assert loop.time() - begun > ALIKE_S - 0.05
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.1"), str)


async def test_a_hook_is_asked_now_and_then_while_its_address_waits(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuses(hook: object, user: str, password: bytes, *where: str) -> object:
        asked.append(user)
        return None if password == b"right" else WRONG

    monkeypatch.setattr(AuthHook, "refuses", refuses)
    passwords = Passwords(users, AccessSection(command=["ask"]))
    logins = PageLogins(lambda: passwords, ["*"])
    for number in range(21):
        await logins.login(f"guess-{number}", "x", "10.0.0.1")
    asked.clear()
    guesses = (logins.login(f"more-{number}", "x", "10.0.0.1") for number in range(20))
    assert {answer[0] for answer in await asyncio.gather(*guesses)} == {429}
    assert len(asked) == 1
    assert isinstance(await logins.login("otto", "right", "10.0.0.1"), str)
    logins.close()


async def test_far_too_long_password_is_not_compared(logins: PageLogins) -> None:
    for user, password in (("u" * 1000, "x"), ("lena", "x" * 10_000), ("", "x")):
        answer = await logins.login(user, password, "127.0.0.1")
        assert answer == (403, "User name or password is wrong.")


async def test_restart_logs_out_only_users_with_a_changed_password(
    users: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page-logins.json"

    def start() -> PageLogins:
        passwords = Passwords(Users(users.path), AccessSection())
        return PageLogins(lambda: passwords, ["le*"], file)

    before = start()
    token, gone = await log_in(before), await log_in(before)
    before.logout(gone)
    session = before.session(token)
    assert session is not None
    before.close()
    after = start()
    found = after.session(token)
    assert found is not None
    assert (found.user, found.operator, found.csrf) == ("lena", True, session.csrf)
    assert after.session(gone) is None
    assert file.stat().st_mode & 0o777 == 0o600
    assert token not in file.read_text()
    clock = Clock(monkeypatch)
    clock.ahead += IDLE_S + 1
    assert after.session(token) is None
    users.add("lena", "another horse")
    assert start().session(token) is None
    file.write_text("{")
    assert start().session(token) is None


async def test_repeated_logins_end_only_sessions_of_the_same_user(users: Users) -> None:
    users.add("otto", PASSWORD)
    passwords = Passwords(users, AccessSection())
    logins = PageLogins(lambda: passwords, ["otto"])
    operator = logins._open("otto", passwords, asyncio.get_running_loop().time())
    tokens = [
        logins._open("lena", passwords, asyncio.get_running_loop().time())
        for _ in range(MOST_SESSIONS + 1)
    ]
    assert logins.session(operator) is not None
    assert [logins.session(token) is not None for token in tokens].count(True) == MOST_OF_ONE
    assert logins.session(tokens[-1]) is not None
    logins.close()


async def test_operators_stay_logged_in_when_viewers_have_all_sessions(users: Users) -> None:
    names = [f"lena-{number}" for number in range(MOST_SESSIONS)]
    passwords = Passwords(users, AccessSection())
    logins = PageLogins(lambda: passwords, ["otto"])
    now = asyncio.get_running_loop().time()
    first = logins._open("otto", passwords, now)
    tokens = [logins._open(name, passwords, now) for name in names]
    assert logins.session(first) is not None
    assert logins.session(tokens[0]) is None
    assert logins.session(logins._open("otto", passwords, now)) is not None
    logins.close()


async def test_known_user_logs_in_despite_wrong_guesses_from_the_same_address(
    users: Users, logins: PageLogins
) -> None:
    """The user and the attacker are behind the same proxy."""
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.1"), str)
    for number in range(40):
        await logins.login(f"nobody-{number}", "wrong", "10.0.0.1")
    assert (await logins.login("nobody", "wrong", "10.0.0.1"))[0] == 429
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.1"), str)
    for _ in range(10):
        await logins.login("lena", "wrong", "10.0.0.1")
    assert (await logins.login("lena", "wrong", "10.0.0.1"))[0] == 429
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.1"), str)


async def test_known_user_logs_in_despite_a_queue_full_of_wrong_names(logins: PageLogins) -> None:
    assert isinstance(await logins.login("lena", PASSWORD, "10.0.0.1"), str)
    logins._passwords()._right.clear()  # as if the file of users had changed
    tries = [logins.login(f"nobody-{n}", "wrong", f"10.0.1.{n}") for n in range(MOST_WAITING + 3)]
    *answers, hers = await asyncio.gather(*tries, logins.login("lena", PASSWORD, "10.0.0.1"))
    assert [answer[0] for answer in answers].count(503) == 3
    assert isinstance(hers, str)


async def test_ipv6_network_counts_as_one_address(logins: PageLogins) -> None:
    answers = [await logins.login(f"user-{n}", "wrong", f"2001:db8::{n:x}") for n in range(1, 24)]
    assert answers[-1][0] == 429
    assert isinstance(await logins.login("lena", PASSWORD, "2001:db8:0:1::1"), str)


async def test_viewer_logs_in_at_the_cost_of_the_viewer_with_the_most(users: Users) -> None:
    passwords = Passwords(users, AccessSection())
    logins = PageLogins(lambda: passwords, ["otto*"])
    now = asyncio.get_running_loop().time()
    one = logins._open("lars", passwords, now)
    many = [logins._open("lotta", passwords, now) for _ in range(MOST_OF_ONE)]
    others = MOST_SESSIONS - MOST_OF_ONE - 1
    operators = [logins._open(f"otto-{number}", passwords, now) for number in range(others)]
    assert await log_in(logins)
    assert logins.session(one) is not None
    assert [logins.session(token) is None for token in many].count(True) == 1
    assert all(logins.session(token) is not None for token in operators)
    logins.close()


async def test_viewer_takes_no_session_of_an_operator(users: Users) -> None:
    passwords = Passwords(users, AccessSection())
    logins = PageLogins(lambda: passwords, ["otto*"])
    now = asyncio.get_running_loop().time()
    tokens = [logins._open(f"otto-{number}", passwords, now) for number in range(MOST_SESSIONS)]
    assert (await logins.login("lena", PASSWORD, "127.0.0.1"))[0] == 503
    assert all(logins.session(token) is not None for token in tokens)
    assert logins.session(logins._open("otto", passwords, now)) is not None
    logins.close()


async def test_restart_logs_out_users_without_a_role(users: Users, tmp_path: Path) -> None:
    file = tmp_path / "page-logins.json"
    passwords = Passwords(users, AccessSection())
    tokens = []
    for operators, viewers in ((["le*"], ["*"]), ([], ["le*"]), ([], ["otto"]), ([], ["*"])):
        logins = PageLogins(lambda: passwords, operators, file, viewers)
        known = [logins.session(token) for token in tokens]
        if viewers != ["otto"]:
            assert all(one is not None and one.operator == bool(operators) for one in known)
            tokens = [await log_in(logins)]
        else:
            assert known == [None]
            answer = await logins.login("lena", PASSWORD, "127.0.0.1")
            assert answer[0] == 403
            tokens = []
        logins.close()
