"""Logins: an address with many sockets or many guesses delays only its own logins."""

import asyncio
import itertools
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.access import trusted
from gateway.access.logins import ALIKE_S, MOST_AT_ONCE, MOST_WAITING, BackOff, Logins
from gateway.access.peer import Peer
from gateway.access.rules import Ask, Refusal, SlowCheck
from gateway.access.trusted import TRUSTED, Trusted
from gateway.access.users import Users
from gateway.mqtt.packets import Connack, Connect
from gateway.mqtt.reason import ReasonCode as R
from tests.access.test_access import LISTENER, alice, answer, configured
from tests.service.process import gateway
from tests.service.wire import Wire


async def login(port: int, connect: Connect, address: str = "127.0.0.1") -> int:
    """Connect from an address of this machine. Return the reason code in CONNACK."""
    streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    client = Wire(*streams, connect.version)
    client.send(connect)
    try:
        return (await client.take(Connack)).reason
    finally:
        client.writer.close()


@asynccontextmanager
async def flood(port: int, sockets: int, address: str) -> AsyncIterator[list[int]]:
    """Guess passwords from one address over many sockets, until the block ends. Each socket waits a
    second after each answer: a faster flood would only measure the speed of this machine. Yield the
    list to which each answer's reason code is added.
    """
    reasons: list[int] = []

    async def guess(number: int) -> None:
        while True:
            with suppress(OSError, AssertionError):
                reasons.append(await login(port, alice(b"%d" % number, f"g{number}"), address))
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(guess(number)) for number in range(sockets)]
    try:
        while not reasons:  # noqa: ASYNC110  # the first guess is answered
            await asyncio.sleep(0.01)
        yield reasons
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_address_with_300_sockets_keeps_no_user_out(tmp_path: Path) -> None:
    arguments = configured(tmp_path, LISTENER)
    users = Users(tmp_path / "data" / "users")
    names = [f"user{number}" for number in range(10)]
    for name in names:
        users.add(name, "right")
    async with gateway(*arguments) as running, flood(running.port, 300, "127.0.0.3") as guesses:
        compared = guesses.count(R.BAD_USER_NAME_OR_PASSWORD)
        connects = [Connect(name, username=name, password=b"right") for name in names]
        reasons = await asyncio.gather(
            *(login(running.port, connect, "127.0.0.2") for connect in connects)
        )
        compared = guesses.count(R.BAD_USER_NAME_OR_PASSWORD) - compared
        assert reasons == [R.SUCCESS] * len(names)
        assert compared <= len(names), "addresses take turns"
        await running.logged("127.0.0.3: 4 wrong passwords")
        assert R.CONNECTION_RATE_EXCEEDED in guesses
        assert sum("wrong passwords" in line for line in running.log) < 10


async def test_an_address_waits_after_some_wrong_passwords_and_others_do_not(
    tmp_path: Path,
) -> None:
    arguments = configured(tmp_path, LISTENER)
    Users(tmp_path / "data" / "users").add("bob", "right")
    async with gateway(*arguments) as running:
        guesses = [await login(running.port, alice(b"guess")) for _ in range(5)]
        assert guesses == [R.BAD_USER_NAME_OR_PASSWORD] * 4 + [R.CONNECTION_RATE_EXCEEDED]
        bob = Connect("b", username="bob", password=b"right")
        assert await login(running.port, bob) == R.SUCCESS, "another user of this address"
        assert await login(running.port, alice(), "127.0.0.2") == R.SUCCESS, "from elsewhere"
        assert await login(running.port, alice()) == R.SUCCESS, "known to be right meanwhile"


async def test_wrong_names_of_others_at_an_address_keep_no_known_user_out(tmp_path: Path) -> None:
    """All clients behind a proxy have the same address."""
    arguments = configured(tmp_path, LISTENER)
    users = Users(tmp_path / "data" / "users")
    names = [f"user{number}" for number in range(5)]
    for name in names:
        users.add(name, "right")
    async with gateway(*arguments) as running:
        connects = [Connect(name, username=name, password=b"right") for name in names]
        for connect in connects:
            assert await login(running.port, connect) == R.SUCCESS
        for name in names:  # the gateway has not seen the new passwords, so it compares each one
            users.add(name, "other")
        running.process.send_signal(signal.SIGHUP)
        await running.logged("configuration, users and certificates read again")
        wrong = [Connect("w", username=f"nobody{n}", password=b"x") for n in range(40)]
        reasons = [await login(running.port, connect) for connect in wrong]
        assert reasons[:21] == [R.BAD_USER_NAME_OR_PASSWORD] * 21, "the waits begin with this one"
        assert reasons[21] == R.CONNECTION_RATE_EXCEEDED
        connects = [Connect(name, username=name, password=b"other") for name in names]
        assert [await login(running.port, item) for item in connects] == [R.SUCCESS] * len(names)


async def test_guesses_of_other_names_keep_no_new_user_of_the_address_out() -> None:
    """The new user is behind the same proxy as clients that guess passwords without end. A wrong
    password and an unknown name get the same answer after the same time.
    """
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[Refusal | None] = asyncio.Queue()
    logins = Logins(loop, lambda order, refusal: answers.put_nowait(refusal))
    wrong = R.BAD_USER_NAME_OR_PASSWORD, "wrong"

    async def log_in(name: str, password: str, *, listed: bool, hook: bool = False) -> object:
        connection = SimpleNamespace(peer=Peer("tcp", "127.0.0.1:1"), closing=None)
        refusal = None if (listed or hook) and password == "right" else wrong
        check = SlowCheck(name, lambda: refusal, listed=listed, asks_others=hook)
        logins.ask(Ask(connection, Connect(name), check))  # type: ignore[arg-type]
        return await answers.get()

    assert await log_in("nobody", "x", listed=False) == wrong
    for _ in range(30):
        logins._addresses.fail("127.0.0.1", loop.time())
    said = set()
    for name, listed in (("alice", True), ("nobody", False)) * 5:
        begun = loop.time()
        refusal = await log_in(name, "x", listed=listed)
        assert loop.time() - begun >= ALIKE_S - 0.01
        assert isinstance(refusal, tuple)
        said.add((refusal[0], refusal[1].partition(", wait")[0]))
    assert said == {(R.CONNECTION_RATE_EXCEEDED, "too many wrong passwords from 127.0.0.1")}
    assert await log_in("bob", "right", listed=True) is None
    assert await log_in("carol", "right", listed=False) is not None, "nobody knows the name"
    assert await log_in("carol", "right", listed=False, hook=True) is None, "the hook knows it"
    guesses = [log_in(f"g{number}", "x", listed=False, hook=True) for number in range(20)]
    asked = len(logins._users._failed)
    await asyncio.gather(*guesses)
    assert len(logins._users._failed) - asked <= 2, "one question in half a second"


async def test_each_kind_of_question_has_places_of_its_own() -> None:
    """Passwords wait in four queues. The gateway's own users have two queues, and so have users of
    the hook: one for users who have logged in from their address before, and one for all others.
    Each queue takes `MOST_WAITING` passwords.
    """
    loop = asyncio.get_running_loop()
    answers: list[Refusal | None] = []
    never = threading.Event()
    logins = Logins(loop, lambda order, refusal: answers.append(refusal))
    try:
        for hook, known in itertools.product((False, True), repeat=2):
            for number in range(MOST_WAITING + 50):
                address, name = f"10.{hook:d}.{known:d}.{number // 10}", f"u{number}"
                if known:
                    logins._trusted.add(address, name)
                connection = SimpleNamespace(peer=Peer("tcp", f"{address}:1"), closing=None)
                check = SlowCheck(name, lambda: never.wait() and None, asks_others=hook)
                logins.ask(Ask(connection, Connect(name), check))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert answers == [(R.SERVER_BUSY, "too many passwords are being compared")] * 4 * 50
        assert [(len(one.waiting), one.under_way) for one in logins._lines.values()] == [
            (MOST_WAITING - most, most) for most in (1, 1, MOST_AT_ONCE, MOST_AT_ONCE)
        ]
    finally:
        never.set()


async def test_earlier_login_is_accepted_after_a_restart(tmp_path: Path) -> None:
    """Only the hook knows the user. The gateway keeps on disk from which addresses a user has
    logged in.
    """
    program = tmp_path / "hook"
    program.write_text("#!/bin/sh\nread line\ncase $line in *right*) exit 0;; esac\nexit 1\n")
    program.chmod(0o755)
    arguments = configured(tmp_path, f'{LISTENER}[access]\ncommand = ["{program}"]\n')
    hers = Connect("h", username="hers", password=b"right")
    async with gateway(*arguments) as running:
        assert await login(running.port, hers) == R.SUCCESS
        assert await running.end() == 0
    file = tmp_path / "data" / TRUSTED
    assert file.stat().st_mode & 0o777 == 0o600
    async with gateway(*arguments) as running:
        others = [Connect("w", username=f"nobody{number}", password=b"x") for number in range(30)]
        reasons = await asyncio.gather(*(login(running.port, other) for other in others))
        assert R.CONNECTION_RATE_EXCEEDED in reasons
        assert await login(running.port, hers) == R.SUCCESS


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[["a"]]', '{"a": 1}', "[[1, 2, 3]]"])
def test_damaged_file_of_earlier_logins_refuses_no_user(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / TRUSTED
    file.write_text(text)
    assert ("127.0.0.1", "alice") not in Trusted(file)
    assert len(caplog.messages) <= 1


async def test_earlier_logins_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted, "MOST", 3)
    found = Trusted(tmp_path / TRUSTED)
    for name in ("a", "b", "a", "c", "d", "x" * 1000):
        found.add("127.0.0.1", name)
    found.close()
    again = Trusted(tmp_path / TRUSTED)
    assert [("127.0.0.1", name) in again for name in ("a", "b", "c", "d", "x" * 1000)] == [
        True,
        False,
        True,
        True,
        False,
    ]


async def test_user_removed_during_the_password_comparison_is_refused(
    tmp_path: Path,
) -> None:
    arguments = configured(tmp_path, LISTENER)
    users = Users(tmp_path / "data" / "users")
    for number in range(12):
        users.add(f"user{number}", "right")
    async with gateway(*arguments) as running:
        before = [
            asyncio.create_task(
                answer(running.port, Connect(f"c{n}", username=f"user{n}", password=b"right"))
            )
            for n in range(12)
        ]
        await asyncio.wait(before, return_when=asyncio.FIRST_COMPLETED)
        hers = asyncio.create_task(answer(running.port, alice()))
        await asyncio.sleep(0)
        assert await answer(running.port, Connect("")) == R.NOT_AUTHORIZED, "hers was read before"
        users.remove("alice")
        running.process.send_signal(signal.SIGHUP)
        await running.logged("configuration, users and certificates read again")
        assert not hers.done(), "her turn is still to come"
        assert await hers == R.NOT_AUTHORIZED
        assert await asyncio.gather(*before) == [R.SUCCESS] * 12


def test_each_failure_beyond_the_free_ones_doubles_the_wait_up_to_a_minute() -> None:
    back_off = BackOff(free=2)
    waits = []
    for _ in range(10):
        back_off.fail("k", 0.0)
        waits.append(back_off.wait_s("k", 0.0))
    assert waits == [0, 0, 2, 4, 8, 16, 32, 60, 60, 60]
    assert back_off.wait_s("k", 59.0) == 1
    assert back_off.wait_s("other", 0.0) == 0
    assert back_off.fail("k", 60 + back_off.FORGET_S + 1) == 1, "long ago"
    back_off.fail("k", 700.0)
    back_off.fail("k", 700.0)
    back_off.succeed("k")
    assert back_off.wait_s("k", 700.0) == 0


def test_any_number_of_addresses_takes_bounded_memory() -> None:
    back_off = BackOff(free=0)
    for number in range(BackOff.KEYS + 10):
        back_off.fail(number, 0.0)
    assert back_off.wait_s(0, 0.0) == 0
    assert back_off.wait_s(BackOff.KEYS + 9, 0.0) == 2
