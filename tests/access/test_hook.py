"""Users whose passwords a hook checks: a command or an HTTP server."""

import asyncio
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.access.hook import AuthHook
from gateway.access.logins import MOST_AT_ONCE
from gateway.config import AccessSection, ConfigError, parse
from gateway.mqtt.packets import Connect, Puback, Publish
from gateway.mqtt.reason import ReasonCode as R
from gateway.system.spawn import run
from tests.access.test_access import LISTENER, alice, answer, configured
from tests.links.certificates import Authority
from tests.service.process import gateway
from tests.service.test_bad_disk import build
from tests.service.wire import wire

HOOK = """
import json, subprocess, sys, time
asked = json.load(sys.stdin)
print(json.dumps(asked), file=open({notes!r}, "a"))
if asked["user"] == "slow":
    child = subprocess.Popen(["sleep", "60"])
    print(json.dumps({{"pid": child.pid}}), file=open({notes!r} + ".slow", "a"))
    child.wait()
if asked["user"] == "odd":
    sys.exit(7)
sys.exit(asked["password"] != "right")
"""


def by_command(folder: Path, more: str = "") -> tuple[Path, str, str]:
    script = folder / "hook.py"
    script.write_text(HOOK.format(notes=str(folder / "asked")))
    command = json.dumps([sys.executable, str(script)])
    return configured(folder, f"{LISTENER}[access]\ncommand = {command}\n{more}")


def asked(folder: Path, name: str = "asked") -> list[dict[str, str]]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(pid: int) -> bool:
    """Return whether a process runs. After its end, its entry stays in /proc until its parent asks
    for the exit code.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the process may end meanwhile
        return False


def connect(user: str, password: bytes = b"right") -> Connect:
    return Connect(f"of {user}", username=user, password=password)


async def test_command_knows_users_of_the_hook(tmp_path: Path) -> None:
    async with gateway(*by_command(tmp_path)) as running:
        assert await answer(running.port, connect("carol", b"guess")) == R.BAD_USER_NAME_OR_PASSWORD
        assert await answer(running.port, Connect("c")) == R.NOT_AUTHORIZED
        assert await answer(running.port, alice()) == R.SUCCESS
        for _ in range(3):  # the gateway remembers that the hook accepted the password
            assert await answer(running.port, connect("carol")) == R.SUCCESS
        questions = asked(tmp_path)
        assert [item["password"] for item in questions] == ["guess", "right"]
        assert {item["user"] for item in questions} == {"carol"}
        assert questions[0].keys() == {"user", "password", "client", "address", "listener"}
        assert questions[0]["client"] == "of carol"
        assert questions[0]["listener"] == "127.0.0.1:0"
        await running.end()
        assert not any(secret in line for secret in ("right", "guess") for line in running.log)


async def test_hanging_command_is_killed_and_delays_no_client(tmp_path: Path) -> None:
    arguments = by_command(tmp_path, "hook_timeout_s = 3\n")
    async with gateway(*arguments) as running, wire(running.port, connect("carol")) as other:
        begin = time.monotonic()
        slow = [asyncio.create_task(answer(running.port, connect("slow"))) for _ in range(4)]
        while len(asked(tmp_path, "asked.slow")) < 4:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.01)
        for number in range(1, 50):
            other.send(Publish("t", b"x", 1, number))
            await other.take(Puback, within=2)
        assert await answer(running.port, connect("dave")) == R.SUCCESS
        assert await asyncio.gather(*slow) == [R.SERVER_UNAVAILABLE] * 4
        assert time.monotonic() - begin < 30
        await running.logged("(no answer in 3 s). See access.command")
        asked_to = [int(item["pid"]) for item in asked(tmp_path, "asked.slow")]
        async with asyncio.timeout(60):
            while any(runs(pid) for pid in asked_to):  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.01)
        assert await running.end() == 0


async def test_the_gateway_stops_at_once_though_a_command_hangs(tmp_path: Path) -> None:
    async with gateway(*by_command(tmp_path, "hook_timeout_s = 60\n")) as running:
        asking = asyncio.create_task(answer(running.port, connect("slow")))
        while not asked(tmp_path, "asked.slow"):  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.01)
        begin = time.monotonic()
        assert await running.end() == 0
        assert time.monotonic() - begin < 10
        assert not any("Traceback" in line for line in running.log)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        (child,) = asked(tmp_path, "asked.slow")
        os.killpg(os.getpgid(int(child["pid"])), signal.SIGKILL)


async def test_program_on_a_slow_disk_delays_no_client(tmp_path: Path) -> None:
    preload = {"LD_PRELOAD": str(build("slow_exec", tmp_path, Path(__file__).parent))}
    arguments = by_command(tmp_path)
    async with gateway(*arguments, env=preload) as running, wire(running.port, alice()) as other:
        asking = asyncio.create_task(answer(running.port, connect("carol")))
        served = 0
        while not asking.done():
            served += 1
            other.send(Publish("t", b"x", 1, served))
            await other.take(Puback, within=1.5)
        assert await asking == R.SUCCESS
        assert served > 5


@pytest.mark.parametrize("how", ["an odd exit code", "no such program"])
async def test_silent_hook_admits_no_user_and_is_logged_once(tmp_path: Path, how: str) -> None:
    arguments = by_command(tmp_path)
    if how == "no such program":
        arguments = configured(tmp_path, f'{LISTENER}[access]\ncommand = ["/no/such"]\n')
    async with gateway(*arguments) as running:
        for _ in range(3):
            assert await answer(running.port, connect("odd")) == R.SERVER_UNAVAILABLE
        await running.logged("exit code 7" if how == "an odd exit code" else "No such file")
        await running.end()
        assert sum("the hook gave no answer" in line for line in running.log) == 1


def test_a_program_inherits_nothing_but_its_question() -> None:
    """The hook's program gets no socket of the gateway, and runs in a process session of its own.
    SIGPIPE ends it as usual, although the gateway ignores SIGPIPE.
    """
    program = (
        'test "$(wc -c)" = 500000 && test "$(cut -d" " -f6 /proc/$$/stat)" = $$'
        " && ! ls -l /proc/$$/fd | grep socket && grep 'SigIgn:.*[02468ace]...$' /proc/$$/status"
    )
    with socket.create_server(("127.0.0.1", 0)) as passed_on:
        passed_on.set_inheritable(True)
        assert run(["sh", "-c", program], b"x" * 500_000, 30) == 0
    assert run(["sh", "-c", "kill -9 $$"], b"", 30) == -9


async def test_permission_of_the_hook_is_cached_until_it_expires(tmp_path: Path) -> None:
    arguments = by_command(tmp_path, "hook_remember_s = 0\n")
    async with gateway(*arguments) as running:
        for _ in range(2):
            assert await answer(running.port, connect("carol")) == R.SUCCESS
        assert len(asked(tmp_path)) == 2


# -- HTTP


@contextmanager
def server(
    seen: list[dict[str, str]], certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Yield the URL of an HTTP server that accepts the password `right`. seen: gets each request.
    certificate: paths of a certificate and its key, with which the server speaks TLS.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(question | {"path": self.path})
            if question["user"] == "drip":
                for _ in range(300):
                    self.wfile.write(b"H")
                    time.sleep(0.1)
                return
            status = 403 if question["password"] != "right" else 200
            if question["user"].startswith("status "):
                status = int(question["user"].removeprefix("status "))
            self.send_response(500 if question["user"] == "odd" else status)
            # without close_notify, the length ends the answer
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.daemon_threads, found.block_on_close = True, False
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            found.socket = context.wrap_socket(found.socket, server_side=True)
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http{'s' * bool(certificate)}://127.0.0.1:{found.server_port}/mqtt?site=7"
        found.shutdown()


async def test_http_server_knows_users_outside_the_file(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    with server(seen) as url:
        text = f'{LISTENER}[access]\nurl = "{url}"\nhook_timeout_s = 2\n'
        async with gateway(*configured(tmp_path, text)) as running:
            assert await answer(running.port, connect("carol")) == R.SUCCESS
            wrong = connect("dave", b"guess")
            assert await answer(running.port, wrong) == R.BAD_USER_NAME_OR_PASSWORD
            assert await answer(running.port, connect("odd")) == R.SERVER_UNAVAILABLE
            begin = time.monotonic()
            assert await answer(running.port, connect("drip")) == R.SERVER_UNAVAILABLE
            assert time.monotonic() - begin < 20, "the whole answer has to come in time"
            await running.end()
            assert not any(secret in line for secret in ("right", "guess") for line in running.log)
    assert [item["user"] for item in seen] == ["carol", "dave", "odd", "drip"]
    assert seen[0]["path"] == "/mqtt?site=7"


async def test_statuses_of_a_server_mean_what_the_guide_says(tmp_path: Path) -> None:
    wanted = {
        200: R.SUCCESS,
        204: R.SUCCESS,
        401: R.BAD_USER_NAME_OR_PASSWORD,
        403: R.BAD_USER_NAME_OR_PASSWORD,
        201: R.SERVER_UNAVAILABLE,
        404: R.SERVER_UNAVAILABLE,
    }
    with server([]) as url:
        arguments = configured(tmp_path, f'{LISTENER}[access]\nurl = "{url}"\n')
        async with gateway(*arguments) as running:
            found = {code: await answer(running.port, connect(f"status {code}")) for code in wanted}
    assert found == wanted


async def test_a_server_that_hangs_keeps_no_user_of_the_file_out(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    with server(seen) as url:
        text = f'{LISTENER}[access]\nurl = "{url}"\nhook_timeout_s = 9\n'
        async with gateway(*configured(tmp_path, text)) as running:
            slow = [asyncio.create_task(answer(running.port, connect("drip"))) for _ in range(20)]
            async with asyncio.timeout(8):
                while len(seen) < MOST_AT_ONCE:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.01)
            assert await answer(running.port, alice()) == R.SUCCESS
            assert not any(item.done() for item in slow)
            await running.end()
            for item in slow:
                item.cancel()
            await asyncio.gather(*slow, return_exceptions=True)


async def test_missing_http_server_refuses_all_clients(tmp_path: Path) -> None:
    with server([]) as url:
        text = f'{LISTENER}[access]\nurl = "{url}"\n'
    async with gateway(*configured(tmp_path, text)) as running:
        assert await answer(running.port, connect("carol")) == R.SERVER_UNAVAILABLE
        assert await answer(running.port, alice()) == R.SUCCESS
        await running.logged("Connection refused")


def ask(url: str, timeout_s: float) -> int:
    """Return the reason code that the hook gives, 0 for success."""
    hook = AuthHook(AccessSection(url=url, hook_timeout_s=timeout_s))
    refusal = hook.refuses("carol", b"right", "c", "127.0.0.1", "l")
    return 0 if refusal is None else refusal[0]


@pytest.mark.parametrize("signed", [True, False])
def test_a_server_with_tls_shows_a_certificate_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "Stranger")
    monkeypatch.setenv("SSL_CERT_FILE", str((authority if signed else other).path))
    with server([], authority.issue("hook")) as url:
        assert ask(url, 30) == (R.SUCCESS if signed else R.SERVER_UNAVAILABLE)


def test_a_name_server_that_is_silent_costs_one_thread_and_no_more_time_than_the_hook_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, asked = threading.Event(), []

    def hang(*args: object, **more: object) -> list[object]:
        asked.append(args)
        goes_on.wait(30)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    hook = AuthHook(AccessSection(url="http://users.example/", hook_timeout_s=0.1))
    begin = time.monotonic()
    for _ in range(3):
        refusal = hook.refuses("carol", b"right", "c", "127.0.0.1", "l")
        assert refusal is not None
        assert refusal[0] == R.SERVER_UNAVAILABLE
    assert time.monotonic() - begin < 10
    assert len(asked) == 1
    goes_on.set()


def test_addresses_that_do_not_answer_share_the_time_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as full, ExitStack() as clients, server([]) as url:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # fill the backlog: later connections get no answer
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        place = urlsplit(url)
        row = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        places = [full.getsockname()] * 3 + [(place.hostname, place.port)]
        addresses = [(*row, item) for item in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        assert ask(url, 2) == R.SUCCESS
        del addresses[-1]
        begin = time.monotonic()
        assert ask(url, 2) == R.SERVER_UNAVAILABLE
        assert time.monotonic() - begin < 5.5


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"command": ["a"], "url": "http://b"}, "has both a command and a url: remove one of them"),
        ({"url": "ftp://b"}, "access.url = 'ftp://b': must be a URL, such as https"),
        ({"url": "https://u:secret@b"}, "access.url: must have no password"),
        ({"command": "a b"}, "access.command: write a list, in square brackets"),
        ({"hook_timeout_s": 0}, "access.hook_timeout_s = 0: input should be greater than 0"),
    ],
)
def test_impossible_settings_are_explained(section: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse({"access": section}, "here")
    assert text in str(raised.value)
    assert "secret" not in str(raised.value)
