"""Notifications reach real servers. The heartbeat ends when the gateway ends."""

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from smtplib import SMTPNotSupportedError, SMTPRecipientsRefused, SMTPResponseException
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web

from gateway.commands.control_client import ask
from gateway.config import ConfigError, NotifySection, parse
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connect, Publish, Suback, Subscribe, Subscription
from gateway.notify import teller
from gateway.notify.channels import channels
from gateway.notify.notices import Message
from gateway.notify.outbox import Outbox
from tests.bridge.mosquitto import Mosquitto, mosquitto
from tests.links.certificates import Authority
from tests.service.process import free_port, gateway, start
from tests.service.wire import wire

MISSING = '[[serial]]\nport = "{}/ttyNone"\n'


class Web:
    """An HTTP server. posted: received JSON objects. beats: paths of received GET requests."""

    def __init__(self) -> None:
        self.posted: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.beats: asyncio.Queue[str] = asyncio.Queue()
        self.refuses = 0
        self.status = 503
        self.port = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method == "GET":
            self.beats.put_nowait(request.path)
        elif self.refuses:
            self.refuses -= 1
            moved = {"Location": f"http://127.0.0.1:{self.port}/elsewhere"}
            return web.Response(status=self.status, headers=moved)
        else:
            self.posted.put_nowait(await request.json())
        return web.Response()


@asynccontextmanager
async def web_server() -> AsyncIterator[Web]:
    made = Web()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    made.port = free_port()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    await runner.cleanup()


@asynccontextmanager
async def mail_server(
    context: ssl.SSLContext, mails: asyncio.Queue[str], *, starttls: bool, refused: str = "@none"
) -> AsyncIterator[int]:
    """Run an SMTP server (RFC 5321), with TLS from the start or with STARTTLS (RFC 3207). The
    server refuses mails without TLS. Yield its port.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        encrypted = not starttls
        say("220 mail.test")
        while line := (await reader.readline()).decode().strip():
            verb = line.upper().split(" ")[0].partition(":")[0]
            if verb == "EHLO":
                say("250-mail.test")
                say("250 8BITMIME" if encrypted else "250 STARTTLS")
            elif verb == "STARTTLS":
                say("220 go on")
                await writer.start_tls(context)
                encrypted = True
            elif verb == "DATA" and encrypted:
                say("354 go on")
                mails.put_nowait((await reader.readuntil(b"\r\n.\r\n")).decode())
                say("250 taken")
            elif verb == "RCPT" and refused in line:
                say("550 no such mailbox")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 fine" if encrypted else "530 use STARTTLS first")
        writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=None if starttls else context)
    yield port
    server.close()


def configuration(folder: Path, text: str) -> Path:
    file = folder / "gateway.toml"
    file.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{folder}/data"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f"{MISSING.format(folder)}[notify]\nafter_s = 0\n{text}"
    )
    return file


@pytest.mark.parametrize("starttls", [False, True], ids=["smtps", "starttls"])
async def test_a_problem_comes_by_mail_webhook_and_command(tmp_path: Path, starttls: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("mail")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    mails: asyncio.Queue[str] = asyncio.Queue()
    out = tmp_path / "said"
    async with web_server() as site, mail_server(context, mails, starttls=starttls) as port:
        scheme = "smtp" if starttls else "smtps"
        text = (
            f'webhook = "http://127.0.0.1:{site.port}/hook"\n'
            f'command = ["/bin/sh", "-c", "cat >> {out}"]\nmail_to = ["lena@example.org"]\n'
            f'mail_server = "{scheme}://127.0.0.1:{port}"\nmail_ca = "{authority.path}"\n'
        )
        file = configuration(tmp_path, text)
        async with asyncio.timeout(60), gateway(tmp_path, "--config", str(file)):
            message = await site.posted.get()
            mail = await mails.get()
            tested = await asyncio.to_thread(ask, tmp_path / "data", do="notify-test")
            again = await site.posted.get()
    assert message["event"] == "begins"
    assert "ttyNone" in str(message["problems"])
    assert "Subject: Onceway site-1: 1 problem began" in mail
    assert "ttyNone" in mail
    assert "To: lena@example.org" in mail
    assert tested == [{"channels": ["command", "webhook", "mail"]}]
    assert again["event"] == "test"
    assert json.loads(out.read_text().partition("}")[0] + "}")["gateway"] == "site-1"


async def test_an_address_that_is_refused_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    authority, mails = Authority(tmp_path), asyncio.Queue[str]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("mail"))
    async with mail_server(context, mails, starttls=False, refused="gone@") as port:
        text = (
            'mail_to = ["gone@example.org", "lena@example.org"]\nmail_from = "gw@example.org"\n'
            f'mail_server = "smtps://127.0.0.1:{port}"\nmail_ca = "{authority.path}"\n'
        )
        async with gateway(tmp_path, "--config", str(configuration(tmp_path, text))) as running:
            mail = await asyncio.wait_for(mails.get(), 60)
            await running.logged("waits for mail to gone@example.org")
            (row,) = await asyncio.to_thread(ask, tmp_path / "data", do="status")
    assert "1 problem began" in mail
    assert mails.empty(), "once"
    (untold,) = [item["what"] for item in row["problems"] if item["part"] == "notify"]
    assert "550" in untold
    assert "lena" not in untold


@pytest.mark.parametrize("status", [500, 302, 307])
async def test_a_hook_that_does_not_take_a_message_gets_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(teller, "AGAIN_S", (0.05,))
    async with web_server() as site:
        site.refuses, site.status = 1, status
        hook = f"http://127.0.0.1:{site.port}/hook"
        send = channels(NotifySection(webhook=hook))["webhook"]
        box = Outbox(tmp_path, ["webhook"])
        message = Message("begins", ["a"], "site-1", 0.0)
        box.put([message])

        async def save() -> None: ...

        line = teller._Line("webhook", send, box, save, lambda: False)
        running = asyncio.create_task(line.run())
        posted = await asyncio.wait_for(site.posted.get(), 10)
        running.cancel()
    assert posted["id"] == message.id
    assert site.refuses == 0
    assert site.beats.empty(), "it is no GET elsewhere"


async def test_notice_that_a_channel_refused_is_shown_and_tried_again(tmp_path: Path) -> None:
    quick = (
        "-c",
        "from gateway.notify import teller; teller.AGAIN_S = (0.5,);"
        " from gateway.commands.main import main; main()",
    )
    async with web_server() as site:
        site.refuses = 4
        file = configuration(tmp_path, f'webhook = "http://127.0.0.1:{site.port}/hook"\n')
        running = await start("--config", str(file), program=quick)
        await running.ready()
        async with asyncio.timeout(60):
            await running.logged(" waits for webhook")
            (row,) = await asyncio.to_thread(ask, tmp_path / "data", do="status")
            message = await site.posted.get()
            while row["problems"][-1]["part"] == "notify":
                (row,) = await asyncio.to_thread(ask, tmp_path / "data", do="status")
        await running.end()
        assert message["event"] == "begins"
        assert site.posted.empty(), "once"


async def test_unsent_notice_is_sent_after_a_restart(tmp_path: Path) -> None:
    async with web_server() as site:
        site.refuses = 1000
        file = configuration(tmp_path, f'webhook = "http://127.0.0.1:{site.port}/hook"\n')
        running = await start("--config", str(file))
        await running.ready()
        async with asyncio.timeout(60):
            await running.logged(" waits for webhook")
            running.process.kill()
            await running.process.wait()
            site.refuses = 0
            async with gateway(tmp_path, "--config", str(file)):
                message = await site.posted.get()
        assert message["event"] == "begins"
        assert "ttyNone" in str(message["problems"])
        assert site.posted.empty(), "once"


async def test_a_message_that_waited_is_not_sent_at_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teller, "LOOK_S", 0.001)
    looks = iter([True, True, True, False])
    sent: asyncio.Queue[int] = asyncio.Queue()
    loop, left = asyncio.get_running_loop(), [4]

    def is_quiet() -> bool:
        left[0] -= 1
        return next(looks)

    async def save() -> None: ...

    def send(message: Message) -> None:
        loop.call_soon_threadsafe(sent.put_nowait, left[0])

    box = Outbox(tmp_path, ["mail"])
    box.put([Message("begins", ["a"], "site-1", 0.0)])
    running = asyncio.create_task(teller._Line("mail", send, box, save, is_quiet).run())
    assert await asyncio.wait_for(sent.get(), 10) == 0, "looks that were left"
    running.cancel()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SMTPResponseException(421, b"busy,\n come later"), "answers 421 busy, come later"),
        (SMTPRecipientsRefused({"a@b": (550, b"no such box")}), "answers 550 no such box"),
        (SMTPNotSupportedError("STARTTLS extension not supported by server."), "no STARTTLS"),
        (ssl.SSLError(1, "[SSL] unknown authority"), "unknown authority"),
    ],
)
def test_refusal_of_a_mail_server_is_shown_in_words(error: Exception, words: str) -> None:
    assert words in (said := teller._words(error))
    assert "b'" not in said


@asynccontextmanager
async def hanging(*, drips: bool) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Run a server that accepts connections and never completes an answer. Yield its port, and an
    event that is set when a client has connected. drips: the server sends a byte from time to time,
    so no socket timeout ends the connection.
    """
    came, over = asyncio.Event(), asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        with suppress(ConnectionError):
            while not over.is_set():
                writer.write(b"2" * drips)
                await asyncio.sleep(0.05)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    yield port, came
    over.set()
    server.close()


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "dripping"])
async def test_channels_that_hang_are_named_and_delay_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(teller, "PATIENCE_S", 3.0)
    out, people = tmp_path / "out", [f"{number}@example.org" for number in range(40)]

    async def problems() -> dict[str, str]:
        return {}

    async with hanging(drips=drips) as (port, _):
        section = NotifySection(
            webhook=f"http://127.0.0.1:{port}/",
            command=["/bin/sh", "-c", f"cat >> {out}"],
            mail_to=people,
            mail_server=f"smtp://127.0.0.1:{port}",
        )
        made = teller.Teller(tmp_path, "site-1", section, problems)
        for reason in ("no answer in 3 s", "the previous attempt has not ended"):
            with pytest.raises(OncewayError, match=reason) as wrong:
                await asyncio.wait_for(made.test(), 10)
            assert wrong.value.where is not None
            named = wrong.value.where.split(", ")
            assert [name for name in made.ways if name not in named] == ["command"]
        assert out.read_text().count('"test"') == 2


async def test_a_gateway_stops_while_a_channel_hangs(tmp_path: Path) -> None:
    async with hanging(drips=True) as (port, came):
        url = f'"http://127.0.0.1:{port}/"'
        file = configuration(tmp_path, f"webhook = {url}\nheartbeat = {url}\n")
        running = await start("--config", str(file))
        await running.ready()
        await asyncio.wait_for(came.wait(), 60)
        assert await asyncio.wait_for(running.end(), 10) == 0


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("windows", "time", "quiet"),
    [
        (["22:00-06:00"], "2026-11-28T22:00+01:00", True),
        (["22:00-06:00"], "2026-11-28T23:59:59+01:00", True),
        (["22:00-06:00"], "2026-11-29T00:00+01:00", True),
        (["22:00-06:00"], "2026-11-29T05:59:59+01:00", True),
        (["22:00-06:00"], "2026-11-29T06:00+01:00", False),
        (["22:00-06:00"], "2026-11-28T21:59:59+01:00", False),
        (["22:00-00:00"], "2026-11-28T23:59+01:00", True),
        (["22:00-00:00"], "2026-11-29T00:00+01:00", False),
        (["12:00-13:00", "22:00-06:00"], "2026-11-28T12:30+01:00", True),
        ([], "2026-11-28T23:00+01:00", False),
        (["02:15-02:45"], "2026-10-25T00:30+00:00", True),  # before the clock is set back
        (["02:15-02:45"], "2026-10-25T01:30+00:00", True),  # the same local time, an hour later
        # 03:15: the clock was set ahead from 02:00 to 03:00
        (["01:30-03:30"], "2026-03-29T01:15+00:00", True),
        # this local hour does not exist on that day
        (["02:00-03:00"], "2026-03-29T01:00+00:00", False),
    ],
)
def test_the_quiet_time_is_local_and_may_pass_midnight(
    windows: list[str], time: str, quiet: bool
) -> None:
    now = datetime.fromisoformat(time).astimezone(BERLIN)
    assert teller.is_quiet(windows, now) is quiet


async def test_the_heartbeat_stops_with_the_gateway(tmp_path: Path) -> None:
    async with web_server() as site:
        text = f'heartbeat = "http://127.0.0.1:{site.port}/beat"\nheartbeat_s = 1\n'
        file = configuration(tmp_path, text)
        async with asyncio.timeout(60), gateway(tmp_path, "--config", str(file)):
            assert [await site.beats.get() for _ in range(2)] == ["/beat", "/beat"]
        while not site.beats.empty():
            site.beats.get_nowait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(site.beats.get(), 2.5)


async def _heartbeat(folder: Path, broker: Mosquitto, more: str = "") -> Path:
    url = f"mqtt://127.0.0.1:{broker.port}/onceway/site-1"
    return configuration(folder, f'heartbeat = "{url}"\nheartbeat_s = 1\n{more}')


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_heartbeat_at_a_broker_ends_with_the_gateway(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with asyncio.timeout(60), mosquitto(tmp_path / "m") as broker:
        file = await _heartbeat(tmp_path, broker)
        async with wire(broker.port, Connect("looks", keep_alive=0)) as client:
            client.send(Subscribe(1, [Subscription("onceway/#", 1)]))
            await client.take(Suback)
            running = await start("--config", str(file))
            await running.ready()
            told = await client.take(Publish)
            assert (told.topic, told.payload) == ("onceway/site-1", b"online")
            await running.end(number)
            assert (await client.take(Publish)).payload == b"offline"
        async with wire(broker.port, Connect("later")) as client:
            client.send(Subscribe(1, [Subscription("onceway/#", 0)]))
            await client.take(Suback)
            told = await client.take(Publish)
            assert (told.payload, told.retain) == (b"offline", True)


async def test_a_broker_that_does_not_take_the_heartbeat_is_shown(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong\n")
    more = f'heartbeat_user = "me"\nheartbeat_password_file = "{tmp_path}/wrong"\n'
    async with asyncio.timeout(60), mosquitto(tmp_path / "m", "allow_anonymous false") as broker:
        file = await _heartbeat(tmp_path, broker, more)
        async with gateway(tmp_path, "--config", str(file)):
            text = ""
            while "the broker refuses the heartbeat" not in text:
                (row,) = await asyncio.to_thread(ask, tmp_path / "data", do="status")
                text = json.dumps(row["problems"])


async def test_a_test_without_a_channel_says_what_to_do(tmp_path: Path) -> None:
    file = configuration(tmp_path, "")
    async with gateway(tmp_path, "--config", str(file)):
        with pytest.raises(OncewayError, match="no notifications are configured"):
            await asyncio.to_thread(ask, tmp_path / "data", do="notify-test")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"mail_to": ["a@b"]}, "set both mail_to and mail_server, or neither"),
        ({"mail_server": "http://x"}, "must be a URL, such as smtps://"),
        ({"webhook": "ftp://x"}, "must be a URL"),
        ({"mail_server": "smtps://u:p@x", "mail_to": ["a@b"]}, "must have no password"),
        ({"quiet": ["22-6"]}, "notify.quiet"),
        ({"heartbeat": "mqtt://x"}, "must be a URL with a topic"),
        ({"heartbeat": "mqtt://x/a/#"}, "must be a URL with a topic"),
        ({"heartbeat": "mqtt://u:p@x/a"}, "must have no password"),
        ({"heartbeat": "ftp://x/a"}, "must be a URL"),
    ],
)
def test_mistakes_are_reported(section: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse({"notify": section}, "here")
