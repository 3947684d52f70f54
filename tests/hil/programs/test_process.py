"""Programs of a run: killed with all their descendants, stopped by their ids, and their failures
reported with their last log lines.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.programs.process import Children, EndedError, Readiness, children, descendants

PARENT = (
    "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60'],"
    " start_new_session=True).pid, flush=True); time.sleep(60)"
)
"""A program that starts a child in a separate session, as Spark's Java starts Python workers."""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
        return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(20):
        while alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_kill_takes_descendants_in_other_sessions_along(tmp_path: Path) -> None:
    async with children(tmp_path) as programs:
        parent = await programs.start("parent", [sys.executable, "-c", PARENT], pipe=True)
        grandchild = int(await anext(parent.lines()))
        assert descendants(parent.pid) == [grandchild]
        await parent.kill()
        assert parent.process.returncode == -9
        await gone(grandchild)
        parent.check()  # ended by us: no failure


async def test_programs_end_with_the_block(tmp_path: Path) -> None:
    async def body() -> None:
        async with children(tmp_path) as programs:
            started.append((await programs.start("one", ["sleep", "60"])).pid)
            started.append((await programs.start("two", ["sleep", "60"])).pid)
            await asyncio.sleep(60)

    started: list[int] = []
    task = asyncio.create_task(body())
    while len(started) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(alive, started))


async def test_stop_asks_first_and_returns_the_exit_code(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        " print('up', flush=True); time.sleep(60)"
    )
    programs = Children(tmp_path)
    child = await programs.start("polite", [sys.executable, "-c", program], pipe=True)
    await anext(child.lines())
    assert await child.stop() == 7


@pytest.mark.parametrize(("end", "how"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9")])
async def test_a_program_that_ends_by_itself_is_a_failure_with_its_last_words(
    tmp_path: Path, end: str, how: str
) -> None:
    async with children(tmp_path) as programs:
        says = "printf 'first\n\033[31mthe disk is full\033[0m\n' >&2"
        child = await programs.start("gateway", ["/bin/sh", "-c", f"{says}; {end}"])
        await child.process.wait()
        with pytest.raises(EndedError, match=r"gateway\.log: gateway ended by itself") as caught:
            child.check()
        assert (caught.value.name, caught.value.how) == ("gateway", how)
        # no control characters
        assert caught.value.last_words == [
            "first",
            "[31mthe disk is full[0m",
        ]


async def test_run_returns_the_output_or_raises(tmp_path: Path) -> None:
    async with children(tmp_path, {"WORD": "hello"}) as programs:
        assert await programs.run("echo", ["/bin/sh", "-c", "echo $WORD"], 5) == "hello\n"
        with pytest.raises(OncewayError, match="exit code 1"):
            await programs.run("false", ["false"], 5)
        start = time.monotonic()
        with pytest.raises(OncewayError, match="did not end within 0 s"):
            await programs.run("sleep", ["sleep", "60"], 0.2)
        assert time.monotonic() - start < 10
        with pytest.raises(OncewayError, match="cannot start none"):
            await programs.start("none", [str(tmp_path / "none")])


NOTIFIER = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
address = "\\0" + os.environ["NOTIFY_SOCKET"][1:]
s.sendto(b"STATUS=starting", address)
s.sendto(b"READY=1", address)
time.sleep(60)
"""


async def test_ready_is_what_the_service_says_to_systemd(tmp_path: Path) -> None:
    readiness = Readiness("service")
    async with children(tmp_path) as programs:
        await readiness.wait(
            await programs.start("service", [sys.executable, "-c", NOTIFIER], env=readiness.env), 10
        )


async def test_a_service_that_never_is_ready(tmp_path: Path) -> None:
    async with children(tmp_path) as programs:
        readiness = Readiness("a")
        with pytest.raises(OncewayError, match="was not ready within 0 s"):
            await readiness.wait(await programs.start("a", ["sleep", "60"], env=readiness.env), 0.1)
        readiness = Readiness("b")
        with pytest.raises(OncewayError, match="ended by itself"):
            await readiness.wait(await programs.start("b", ["false"], env=readiness.env), 10)


def test_the_environment_is_not_replaced(tmp_path: Path) -> None:
    async def path() -> str:
        async with children(tmp_path, {"X": "1"}) as programs:
            return await programs.run("path", ["/bin/sh", "-c", "echo $PATH"], 5)

    assert asyncio.run(path()).strip() == os.environ["PATH"]


LAUNCHER = (
    "import subprocess, sys; sys.exit(subprocess.run([sys.executable, sys.argv[1]]).returncode)"
)
JOB = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
Path(sys.argv[0]).with_name("ready").touch()
time.sleep(60)
"""


async def test_the_script_alone_is_asked_to_end_and_its_launcher_ends_with_it(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    async with children(tmp_path) as programs:
        launcher = await programs.start("launcher", [sys.executable, "-c", LAUNCHER, str(job)])
        async with asyncio.timeout(20):
            while not (tmp_path / "ready").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await launcher.finish("job.py", 20) == 7
        launcher.check()  # ended by us: no failure


async def test_process_that_ignores_a_stop_is_killed(tmp_path: Path) -> None:
    async with children(tmp_path) as programs:
        deaf = await programs.start("deaf", ["sleep", "60"])
        assert await deaf.finish("job.py", 20) is None
        assert not deaf.running
        deaf.check()
