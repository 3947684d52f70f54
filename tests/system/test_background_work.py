"""If work in the background fails, a person can see it somewhere.

The test finds each place in the source that starts such work: a task, a thread or a timer. The
table below says for each of them what shows a failure: a job with a time limit, another line of the
status, or the reason why it cannot fail unnoticed for long. If new code starts background work,
this test fails until the table has it.
"""

import ast
import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from gateway.system import jobs, late_file
from gateway.system.jobs import InternalErrors, SavedFile
from gateway.system.late_file import LateFile
from gateway.web import health
from gateway.web.overview import _TODO
from tests.links.board import until
from tests.web.test_overview import source

ROOT = Path(__file__).parents[2] / "gateway"
OTHER_PROCESSES = ("ingest", "publisher", "commands")
"""Packages whose code does not run in the gateway's services."""
STARTS = (
    *("create_task", "ensure_future", "create_subprocess_exec", "Thread", "run_in_executor"),
    *("to_thread", "call_later", "call_at", "submit"),
)

CLIENT = "ends with a connection or request, whose other side sees it"
ENGINE = "runs in `Engine.do`: an error stops the gateway, exit code 70"
WATCHDOG = "systemd's watchdog restarts the gateway"
CAUGHT = "job internal"
"""Marks work whose errors reach the event loop's exception handler."""

PLACES = {
    "access/logins.py": {
        "Logins._answer": ENGINE,
        "Logins._next": CLIENT,
        "_Threads.submit": CLIENT,
    },
    "boards/admission.py": {
        "Watch.__init__": "job boards",
        "Watch._watch": "job boards",
        "Watch.look": "job registry",
    },
    "boards/device_list.py": {
        "DeviceList.__init__": "job device_list",
        "DeviceList._publish": "job device_list",
    },
    "boards/nowhere.py": {"Nowhere.among": "part boards: the last reply stays in force"},
    "bridge/agreed.py": {"AgreedFile._do": "part bridge", "AgreedFile.close": "part bridge"},
    "bridge/aside.py": {"BridgeAside.again": "a command, which is told"},
    "bridge/bridge.py": {"Bridge._sample": CAUGHT, "Bridge.start": "part bridge"},
    "bridge/converge.py": {
        "Convergence._remember_refused": "part bridge",
        "Convergence.begin": "part bridge",
    },
    "bridge/exchange.py": {"Exchange._from_near": CAUGHT, "Exchange._is_held": CAUGHT},
    "bridge/far.py": {"FarConnection._look": CAUGHT, "FarConnection.open": "part bridge"},
    "bridge/gate.py": {"Gate.take": "part bridge"},
    "bridge/own_queue.py": {"OwnQueue._soon": ENGINE},
    "links/counted_server.py": {"CountedServer._accept": CLIENT},
    "links/endpoint.py": {"Endpoint.listen": "part listeners"},
    "links/http_server.py": {"Exchanges._begin": CLIENT},
    "links/lora/port.py": {
        "LoraListener._arm": "part radio",
        "LoraListener._flush": "part radio",
        "LoraListener._on_recorded": "part radio",
        "LoraListener._try_again": "part radio",
    },
    "links/serial_port.py": {
        "SerialListener._scan": WATCHDOG,
        "SerialPort._arm": "part serial",
    },
    "links/tcp.py": {"TcpTransport.close": CLIENT, "TcpTransport.linger": CLIENT},
    "links/websocket.py": {
        "WebSocketListener._connection": CLIENT,
        "WebSocketListener._serve": CLIENT,
        "WebSocketTransport.close": CLIENT,
    },
    "mirror/home_assistant.py": {
        "HomeAssistant.start": "job home_assistant",
        "HomeAssistant._run": "job home_assistant",
    },
    "mirror/json_topics.py": {"Mirror._run": "job mirror", "Mirror.start": "job mirror"},
    "notify/teller.py": {"Teller._save": "job notices", "Teller.start": "job notify"},
    "runtime/client_link.py": {
        "ClientLink._wait_for_pause": ENGINE,
        "ClientLink._wake_later": ENGINE,
    },
    "runtime/engine.py": {
        "Engine.__init__": ENGINE,
        "Commits.commit": ENGINE,
        "Commits._submit_rest": ENGINE,
        "Commits.stop": "the stop waits for it",
        "Engine._tick": ENGINE,
        "Engine.call_later": ENGINE,
        "Engine.gather": ENGINE,
    },
    "runtime/garbage.py": {"Garbage.__init__": CAUGHT, "Garbage._look": CAUGHT},
    "runtime/internal_client.py": {"Client.send": ENGINE},
    "runtime/watchdog.py": {"Watchdog._look": WATCHDOG},
    "service/control.py": {"_look": CLIENT},
    "service/device_commands.py": {"run": CLIENT},
    "service/gateway.py": {"serve.reload": "`gateway reload` tells its result"},
    "service/management.py": {"Management._start_page": "the start waits for it"},
    "site/links/kept_list.py": {"KeptList._save": "job site_members"},
    "site/links/certificate.py": {"OwnCertificate._renew": "job site_certificate"},
    "site/links/listening.py": {"Listener.keep_accepting": "part site"},
    "site/links/net.py": {
        "Net._answer": "the invited gateway sees it",
        "Net._look": CAUGHT,
        "Net._start_task": CAUGHT,
        "Net.start": "part site",
    },
    "site/wiring/forwarding.py": {
        "Forwarding._watch": CAUGHT,
        "_Near.resume_reading": ENGINE,
        "_Port.open": CAUGHT,
    },
    "site/wiring/local_member.py": {"Site._wake": CAUGHT},
    "site/wiring/membership.py": {"Membership._list_changed": "job site_change"},
    "site/wiring/registry.py": {
        "SiteRegistry._exchange": "job site_registry",
        "SiteRegistry.start": "job site_registry",
    },
    "site/wiring/replicas.py": {
        "SiteCopies.__init__": CAUGHT,
        "SiteCopies._tick": CAUGHT,
        "_Worker._begin": "job shelf",
        "_Worker._failed": "job copies",
        "_Worker.close": "the stop waits for it",
    },
    "site/wiring/retained.py": {"SiteRetained._enter": CAUGHT},
    "site/wiring/session_list.py": {"Listing.counts": CLIENT},
    "store/checkpoint.py": {"Checkpointer.__init__": "job checkpoint"},
    "store/writer.py": {"Writer.__init__": WATCHDOG},
    "system/dial.py": {"_addresses": "the caller waits for it", "connected": CLIENT},
    "system/late_file.py": {
        "LateFile._write": "job trusted-logins.json",
        "LateFile._write_in": "job trusted-logins.json",
    },
    "system/patience.py": {"Patience.wait": "the caller waits for it"},
    "web/live.py": {"Live.start": "job page"},
    "web/page.py": {"PageServer._search": CLIENT},
    "web/page_flash.py": {"PageFlash.start": CLIENT, "_run": CLIENT},
    "web/page_logins.py": {"PageLogins.login": CLIENT},
    "web/page_messages.py": {"Watch._end": ENGINE, "Watch._show": ENGINE},
    "web/page_registry.py": {"PageRegistry._run": CLIENT},
    "web/uplink.py": {"UplinkReader.state": "job page"},
}
"""The places that show a failure, by file and function. `job NAME`: a background job. `part NAME`:
a part of the status. `job internal`: errors of timers that run again later.
"""


def starts_in(path: Path) -> Iterator[str]:
    """Yield the name of each function that starts background work: CLASS.FUNCTION, or FUNCTION
    outside of a class.
    """

    def visit(node: ast.AST, inside: list[str]) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = [*inside, node.name]
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in STARTS:
                yield ".".join(inside)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(path.read_text()), [])


def sources() -> Iterator[Path]:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in OTHER_PROCESSES:
            yield path


def test_all_background_work_has_a_place_in_the_status() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in sources() for name in starts_in(path)}
    told = {(file, name) for file, names in PLACES.items() for name in names}
    assert not found - told, "new background work: give it a job, and a line in the table"
    assert not told - found, "lines of work that is gone"


def test_each_place_exists() -> None:
    text = "".join(path.read_text() for path in sources())
    parts = {*get_args(health.Part), *_TODO}
    for place in {place for names in PLACES.values() for place in names.values()}:
        if job := re.fullmatch(r"job (\S+)", place):
            assert f'"{job[1]}"' in text, place
        elif part := re.match(r"part (\w+)", place):
            assert part[1] in parts, place


def test_each_job_of_the_source_is_shown() -> None:
    """A job that is missing in the status could fail unnoticed."""
    missing = []
    for path in sources():
        text = path.read_text()
        made = re.findall(r"self\.(\w+) = (?:Job|SavedFile|LateFile|LogJob)\(", text)
        name = str(path.relative_to(ROOT))
        shown = "jobs" in text or re.search(r"^        self\.job = ", text, re.MULTILINE)
        if made and not shown and name not in ("system/jobs.py", "system/late_file.py"):
            missing.append((name, made))
    owners = {"boards/expected.py", "boards/reports.py"}  # `Registry.jobs` lists their jobs
    assert {name for name, _ in missing} <= owners, missing


def test_error_that_nothing_else_notices_is_a_problem_for_an_hour(tmp_path: Path) -> None:
    now = 0.0
    errors = InternalErrors(lambda: now)
    seen = replace(source(tmp_path), jobs=[errors])
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(errors.take)

    def bad() -> None:
        raise KeyError("nobody expects it")

    loop.call_soon(bad)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    (problem,) = health.problems(seen)
    assert "nobody expects it" in problem.what
    now = jobs.FORGET_S + 1
    assert health.problems(seen) == []


async def test_late_file_is_written_once_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(late_file, "AGAIN_S", 0.01)
    file, text = tmp_path / "known.json", "1"
    saved = SavedFile(file, "what is known", 0o600)
    late = LateFile(saved, lambda: text, 0.01)
    blocked = file.with_suffix(".new")
    blocked.mkdir()
    late.changed()
    await until(lambda: saved.job.failures >= 3)
    assert len(caplog.messages) == 1
    blocked.rmdir()
    await until(file.exists)
    assert file.stat().st_mode & 0o777 == 0o600
    await until(lambda: saved.job.error is None)
    text = "2"
    late.changed()
    late.close()
    assert file.read_text() == "2"
