"""A fault-injecting layer below one program: it makes only the requested faults, only in its
folder, and counts them.
"""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.reason import ReasonCode
from hil.faults.machine import ClockUnknown
from hil.faults.preload import Machine
from hil.faults.windows import (
    AFTER_ACK,
    AFTER_DELETE,
    AFTER_RELEASE,
    AFTER_SYNC,
    BEFORE_ACK,
    BEFORE_DELETE,
    BEFORE_MANIFEST,
    BEFORE_RELEASE,
    BEFORE_SYNC,
    BEFORE_WRITE,
)
from hil.formats.frames import stuff
from hil.observe.spool import holds_publication

PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    os.write(file, b"x")
    os.pwrite(file, b"x", 0)
    written = "written"
except OSError as error:
    written = error.strerror
start = time.monotonic()
os.fdatasync(file)
print(written, time.monotonic() - start, time.time() > 2e9, sep="|")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "data").mkdir()
    return Machine(tmp_path / "machine", tmp_path / "data")


def run(machine: Machine, file: Path) -> tuple[str, float, str]:
    """Run PROGRAM. Return the outcome of its writes, the duration of its sync in seconds, and
    whether its clock is ahead. Without a fault, the duration depends on the disk.
    """
    argv = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(
        argv, env={**os.environ, **machine.env}, capture_output=True, text=True, check=True
    )
    written, seconds, ahead = done.stdout.strip().split("|")
    return written, float(seconds), ahead


SYNCHRONISED = "from gateway.runtime.clock import synchronised; print(synchronised())"


def test_a_clock_of_unknown_time_is_late_and_becomes_known(machine: Machine) -> None:
    ClockUnknown(kind="clock-unknown", behind_h=24).prepare(machine)
    program = f"import time; print(time.time()); {SYNCHRONISED}"

    def look() -> list[str]:
        argv = [sys.executable, "-c", program]
        env = {**os.environ, **machine.env}
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, check=True
        ).stdout.split()

    late, known = look()
    assert known == "False"
    assert time.time() - 25 * 3600 < float(late) < time.time() - 24 * 3600 + 1
    machine["unknown"] = machine["clock_ns"] = 0
    now, known = look()
    assert (known, machine["asked"]) == ("True", 2)
    assert abs(float(now) - time.time()) < 600


@pytest.mark.parametrize("synchronised", [False, True])
def test_kernel_may_call_a_slow_clock_synchronised(machine: Machine, synchronised: bool) -> None:
    ClockUnknown(kind="clock-unknown", synchronised=synchronised).prepare(machine)
    argv = [sys.executable, "-c", f"import time; {SYNCHRONISED}; print(int(time.time()))"]
    env = {**os.environ, **machine.env}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    known, now = done.stdout.split()
    assert known == str(synchronised)
    assert abs(time.time() - 100 * 3600 - int(now)) < 600


COMMITS = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute(f"PRAGMA synchronous={sys.argv[2]}")
db.execute("CREATE TABLE row (id)")
for _ in range(2):
    db.execute("INSERT INTO row VALUES (1)")
    time.sleep(3.1)
db.execute("INSERT INTO row VALUES (1)")
"""


@pytest.mark.parametrize(("synchronous", "times"), [("FULL", 0), ("NORMAL", 2)])
def test_commits_without_a_sync_are_counted(
    machine: Machine, tmp_path: Path, synchronous: str, times: int
) -> None:
    argv = [sys.executable, "-c", COMMITS, str(tmp_path / "data" / "a.db"), synchronous]
    subprocess.run(argv, env={**os.environ, **machine.env}, check=True)
    assert machine["stale"] == times


def test_a_good_machine(machine: Machine, tmp_path: Path) -> None:
    written, _, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("written", "False")
    assert [machine[name] for name in ("refused", "slowed", "shifted")] == [0, 0, 0]


def test_a_bad_machine_is_bad_below_its_folder(machine: Machine, tmp_path: Path) -> None:
    machine["full"], machine["slow_ms"], machine["clock_ns"] = 1, 300, 10**18
    written, seconds, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("No space left on device", "True")
    assert seconds >= 0.3
    assert (machine["refused"], machine["slowed"]) == (1, 1)
    assert machine["shifted"] >= 1
    written, _, ahead = run(machine, tmp_path / "elsewhere")
    assert (written, ahead) == ("written", "True")
    machine["full"] = machine["slow_ms"] = machine["clock_ns"] = 0
    written, _, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("written", "False")
    assert (machine["refused"], machine["slowed"]) == (1, 1)


HALVES = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print(os.write(file, b"0123456789"))
for _ in range(2):
    try:
        os.write(file, b"x")
    except OSError as error:
        print(error.strerror)
"""


def test_an_upload_is_cut_half_way_and_the_line_is_dead_then(
    machine: Machine, tmp_path: Path
) -> None:
    def upload(file: Path) -> list[str]:
        argv = [sys.executable, "-c", HALVES, str(file)]
        done = subprocess.run(
            argv, env={**os.environ, **machine.env}, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    machine["cut"] = 1
    assert upload(tmp_path / "elsewhere") == ["10"]
    assert upload(tmp_path / "data" / "file") == ["5", "Input/output error", "Input/output error"]
    assert (tmp_path / "data" / "file").read_bytes() == b"01234"
    assert machine["halved"] == 1
    machine["cut"] = 0
    assert upload(tmp_path / "data" / "other") == ["10"]


APPEARS = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "a.json").write_text("a")
(folder / "b.tmp").write_text("b")
if sys.argv[2] == "rename":
    os.rename(folder / "b.tmp", folder / "b.json")
else:
    (folder / "b.json").write_text("b")
"""


@pytest.mark.parametrize("way", ["rename", "open"])
def test_a_program_is_stopped_just_before_a_file_appears(
    machine: Machine, tmp_path: Path, way: str
) -> None:
    machine.hold_before("*/data/b*.json")
    process = subprocess.Popen(
        [sys.executable, "-c", APPEARS, str(tmp_path / "data"), way],
        env={**os.environ, **machine.env},
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert machine["held"] == 1
    assert machine.found == str(tmp_path / "data" / "b.json")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.json", "b.tmp"]
    process.kill()
    assert process.wait(30) == -9
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.json", "b.tmp"]


def test_a_program_goes_on_that_is_held_no_more(machine: Machine, tmp_path: Path) -> None:
    machine.hold_before("*/data/b.json")
    machine["hold"] = 0
    argv = [sys.executable, "-c", APPEARS, str(tmp_path / "data"), "rename"]
    subprocess.run(argv, env={**os.environ, **machine.env}, check=True, timeout=60)
    assert machine["held"] == 0
    with pytest.raises(ValueError, match="longer than 255 bytes"):
        machine.hold_before("x" * 256)


# before the first write, before the second, after the sync
@pytest.mark.parametrize(("steps", "size"), [(1, 0), (2, 1), (3, 1)])
def test_process_is_stopped_after_the_given_steps(
    machine: Machine, tmp_path: Path, steps: int, size: int
) -> None:
    machine.count_steps(steps)
    file = tmp_path / "data" / "file"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)],
        env={**os.environ, **machine.env},
        stdout=subprocess.PIPE,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert (file.stat().st_size, machine["steps"]) == (size, 0)
        assert machine["stood"] == steps
    finally:
        process.kill()
        process.communicate()


SERVER = """
import asyncio, sqlite3, sys, threading, uvloop
database = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE IF NOT EXISTS row (value)")

def commit(value):
    database.execute("INSERT INTO row VALUES (?)", (value,))

async def serve(reader, writer):
    while line := await reader.readline():
        await asyncio.to_thread(commit, line.decode())
        writer.write(b"\\xd0\\0")  # a PINGRESP is no answer to a publication
        writer.write(b"\\x40\\2\\0\\1")

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""
"""A small gateway: an event loop of libuv, a thread that commits, and an answer after each
commit.
"""


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(
    ("window", "stands", "committed", "answered"),
    [
        (BEFORE_WRITE, False, 0, b""),
        (BEFORE_SYNC, False, 0, b""),
        (AFTER_SYNC, True, 0, b""),  # a kill loses it: SQLite has not made it visible yet
        (BEFORE_ACK, True, 1, b"\xd0\0"),
        (AFTER_ACK, True, 1, b"\xd0\0\x40\2\0\1"),
    ],
)
def test_a_program_is_stopped_in_the_window_that_is_armed(
    machine: Machine, tmp_path: Path, window: int, stands: bool, committed: int, answered: bytes
) -> None:
    """The test itself has the database open, too, as the uplink has the gateway's database."""
    database = tmp_path / "data" / "store.db"
    argv = [sys.executable, "-c", SERVER, str(database)]
    env = {**os.environ, **machine.env}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            uplink = sqlite3.connect(database)
            uplink.execute("SELECT count(*) FROM row").fetchone()
            machine.arm(window)
            with socket.create_connection(("127.0.0.1", port), timeout=0.5) as client:
                client.sendall(b"one\n")
                while machine["reached"] != window:
                    assert server.poll() is None
                    time.sleep(0.005)
                deadline = time.monotonic() + (20 if stands else 0.5)
                while not stopped(server.pid) and time.monotonic() < deadline:
                    time.sleep(0.005)
                assert stopped(server.pid) is stands
                try:
                    said = client.recv(100)
                except TimeoutError:
                    said = b""
                assert said == answered
        finally:
            server.send_signal(signal.SIGKILL)
    assert uplink.execute("SELECT count(*) FROM row").fetchone() == (committed,)
    uplink.close()


ANSWERS = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE row (value)")
for line in sys.argv[3:]:
    os.write(int(sys.argv[2]), bytes.fromhex(line))
"""


@pytest.mark.parametrize(
    ("answer", "stands"),
    [
        (encode(Puback(0x100), Version.V5), True),
        (encode(Pubrec(0x100), Version.V5), True),
        (encode(Pubcomp(0x100), Version.V5), True),
        (encode(Publish("a/b", b"\0" * 200), Version.V5) + encode(Puback(1), Version.V5), True),
        (encode(Publish("a/b", b"\x40\2\0\1"), Version.V5), False),
        (encode(Pubrel(0x100), Version.V5), False),
        (encode(Pubcomp(0x100, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), Version.V5), False),
        (b"\x40", False),
        (b"", False),
    ],
)
@pytest.mark.parametrize("serial", [True, False])
def test_only_an_answer_to_a_publication_ends_the_window_behind_a_commit(
    machine: Machine, tmp_path: Path, answer: bytes, stands: bool, serial: bool
) -> None:
    """serial: whether the answer comes over a serial line, in a frame after an ACK of the link. If
    false, the answer is the only data on a TCP connection.
    """
    if serial:
        near, far = os.openpty()
        said = stuff(b"\x40" + b"\0\0") + b"\0" + stuff(b"\x11" + answer + b"\1\2") + b"\0"
    else:
        server = socket.create_server(("127.0.0.1", 0))
        ends = (socket.create_connection(server.getsockname()), server.accept()[0])
        near, far = (end.detach() for end in ends)
        said = answer
    machine.arm(AFTER_ACK)
    argv = [sys.executable, "-c", ANSWERS, str(tmp_path / "data" / "store.db"), str(far)]
    env = {**os.environ, **machine.env}
    with subprocess.Popen([*argv, said.hex()], env=env, pass_fds=[far]) as program:
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) is stands
        program.returncode = None if stands else os.waitstatus_to_exitcode(status)
        program.kill()
    assert (machine["reached"] == AFTER_ACK) is stands
    for fd in (near, far):
        os.close(fd)


@pytest.mark.parametrize(
    ("window", "arrived"), [(BEFORE_RELEASE, b""), (AFTER_RELEASE, encode(Pubrel(7), Version.V5))]
)
@pytest.mark.parametrize(
    ("packets", "stands"),
    [
        (encode(Pubrel(7), Version.V5), True),
        (encode(Pubrel(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), Version.V5), False),
        (encode(Pubrec(7), Version.V5), False),
        (encode(Publish("a", b"\x62\2\0\7"), Version.V5), False),
    ],
)
def test_a_program_is_stopped_at_a_release(
    machine: Machine, tmp_path: Path, window: int, arrived: bytes, packets: bytes, stands: bool
) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    near, far = socket.create_connection(server.getsockname()), server.accept()[0]
    machine.arm(window)
    argv = [sys.executable, "-c", ANSWERS, str(tmp_path / "data" / "store.db"), str(far.fileno())]
    env = {**os.environ, **machine.env}
    with subprocess.Popen([*argv, packets.hex()], env=env, pass_fds=[far.fileno()]) as program:
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) is stands
        program.returncode = None if stands else os.waitstatus_to_exitcode(status)
        program.kill()
    far.close()
    assert near.recv(1000) == (arrived if stands else packets)
    near.close()
    server.close()


@pytest.mark.parametrize("ending", [b"\1\2", b"\x40\2\1\2", b"\x50\2\1\2"])
def test_the_check_at_the_end_of_a_frame_is_no_answer(
    machine: Machine, tmp_path: Path, ending: bytes
) -> None:
    near, far = os.openpty()
    said = stuff(b"\x11" + encode(Publish("a", b"x"), Version.V5) + ending) + b"\0"
    machine.arm(AFTER_ACK)
    argv = [sys.executable, "-c", ANSWERS, str(tmp_path / "data" / "store.db"), str(far)]
    env = {**os.environ, **machine.env}
    done = subprocess.run([*argv, said.hex()], env=env, pass_fds=[far], timeout=60, check=False)
    assert done.returncode == 0
    for fd in (near, far):
        os.close(fd)


KEEPER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE spool (id INTEGER PRIMARY KEY)")
database.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
database.execute("CREATE VIEW spool_last AS SELECT coalesce(max(id), 0) AS id FROM spool")
database.execute("INSERT INTO spool VALUES (7)")
print(flush=True)
sys.stdin.readline()
database.execute(f"INSERT INTO {sys.argv[2]} VALUES (8)")
"""


@pytest.mark.parametrize(("table", "holds"), [("spool", True), ("other", False)])
def test_commit_content_is_seen_before_the_report(
    machine: Machine, tmp_path: Path, table: str, holds: bool
) -> None:
    database = tmp_path / "data" / "store.db"
    argv = [sys.executable, "-c", KEEPER, str(database), table]
    env = {**os.environ, **machine.env}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdout.readline()
        machine.arm(AFTER_SYNC)
        keeper.stdin.write(b"go\n")
        keeper.stdin.flush()
        while not stopped(keeper.pid):
            assert keeper.poll() is None
            time.sleep(0.005)
        assert holds_publication(database) is holds
        keeper.send_signal(signal.SIGKILL)


LANDER = """
import os, sqlite3, sys
folder = sys.argv[1]
database = sqlite3.connect(folder + "/store.db", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("SELECT * FROM row")
for name in ("0001.parquet", "0001.json"):
    with open(f"{folder}/hidden-{name}", "w") as file:
        os.fsync(file.fileno())
    os.link(f"{folder}/hidden-{name}", f"{folder}/{name}")
database.execute("DELETE FROM row")
"""


@pytest.mark.parametrize(
    ("window", "names", "rows"),
    [
        (BEFORE_MANIFEST, {"0001.parquet"}, 1),
        (BEFORE_DELETE, {"0001.parquet", "0001.json"}, 1),
        (AFTER_DELETE, {"0001.parquet", "0001.json"}, 0),
    ],
)
def test_an_uplink_is_stopped_between_its_steps(
    machine: Machine, tmp_path: Path, window: int, names: set[str], rows: int
) -> None:
    """The test has the store open, as the gateway has while its uplink runs."""
    folder = tmp_path / "data"
    gateway = sqlite3.connect(folder / "store.db", isolation_level=None)
    gateway.execute("PRAGMA journal_mode=WAL")
    gateway.execute("CREATE TABLE row (value)")
    gateway.execute("INSERT INTO row VALUES (1)")
    machine.arm(window)
    argv = [sys.executable, "-c", LANDER, str(folder)]
    with subprocess.Popen(argv, env={**os.environ, **machine.env}) as lander:
        while not stopped(lander.pid):
            assert lander.poll() is None
            time.sleep(0.005)
        lander.send_signal(signal.SIGKILL)
    assert machine["reached"] == window
    assert {path.name for path in folder.glob("0001.*")} == names
    assert gateway.execute("SELECT count(*) FROM row").fetchone() == (rows,)
    gateway.close()
