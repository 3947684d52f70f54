"""The Debian packages in bare userlands of Debian 12 and 13, as root: the steps of a user, from
installation to removal. Prints sizes and times; exit code 1 at the first failure.
`try_install.py 13` tries one release.

Each userland is made by debootstrap under /tmp, booted by systemd-nspawn without a network, and
removed at the end. The board is the simulated one, on a port of the userland.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from previous import RELEASE
from previous import package as previous_package
from readme import commands, lines
from repack import repack
from targets import TARGETS, this_machine
from try_calls import Calls
from try_problems import Problems
from try_upgrade import Upgrades
from userland import NAMES, Userland, Wrong, debootstrap, wait_for

from gateway import __version__

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
NEXT = "9.9.9"
MOST_MB = 150
MOST_EXPOSED = 1.6
"""Largest exposure of a service, as `systemd-analyze security` rates it from 0 to 10."""
CONFIG = """
[gateway]
name = "site-1"
trust_clock = true

[[listener]]
bind = "127.0.0.1:1883"

[[serial]]
port = "/run/board/tty"

[uplink]
landing = "file:///srv/onceway/landing"
batch_age_s = 1
"""
ARM64_PROGRAM = """
import platform
import aiohttp, arro3.io, asyncssh, cryptography.hazmat.bindings._rust, s3fs, uvloop
import gateway.service.gateway, gateway.uplink.runner, provisioning.cli
from gateway.uplink.batch import Origin, encode
data = encode([("a", 1, 2, None, "t", b"x", None, 1, 2, 3)], Origin("s", "00c0ffee"), 1)
print("onceway", platform.machine(), data[:4].decode())
"""
DROP_IN = "[Service]\nDeviceAllow=char-pts rw\n"


def main() -> None:
    wanted = [int(word) for word in sys.argv[1:]] or list(NAMES)
    os.environ["SYSTEMD_LOG_LEVEL"] = "err"
    try:
        with tempfile.TemporaryDirectory() as name:
            _try_wheel(Path(name))
    except Wrong as wrong:
        print(f"the wheel: {wrong}", file=sys.stderr)
        sys.exit(1)
    for release in wanted:
        folder = Path(tempfile.mkdtemp(prefix="onceway-", dir="/tmp"))
        try:
            _try_release(release, folder / NAMES[release])
            _try_arm64(release, folder / "arm64")
        except Wrong as wrong:
            print(f"Debian {release}: {wrong}", file=sys.stderr)
            sys.exit(1)
        finally:
            shutil.rmtree(folder)


def _try_wheel(folder: Path) -> None:
    """Try `pip install onceway[gateway]` in a venv: each command works, or says what to install."""
    start = time.monotonic()
    (wheel,) = (BUILD / "wheel").glob("onceway-*.whl")
    onceway, pip = folder / "bin/onceway", [folder / "bin/pip", "install", "--quiet"]
    constraints = ("--constraint", ROOT / ".setup/constraints.txt")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([*pip, *constraints, f"onceway[gateway] @ file://{wheel}"], check=True)

    def output(*words: str) -> str:
        done = subprocess.run([onceway, *words], capture_output=True, text=True, cwd=folder)
        return done.stdout + done.stderr

    shown = output("--help")
    groups = ("gateway", "uplink", "device", "board", "radio", "site")
    for command in (*groups, "doctor", "backup", "hil"):
        _expect(shown, f"│ {command} ")
        more = f"pip install 'onceway[hil] @ file://{wheel}'"
        _expect(output(command, "--help"), more if command == "hil" else "Usage")
    _, slave = os.openpty()
    port = os.ttyname(slave)
    os.close(slave)  # otherwise the port is in use
    own = ("--registry", "registry.db")
    _expect(output("device", "add", "roof-1", "--port", port, "--dry-run", *own), "hex/uno.hex")
    print(f"the wheel in a venv has every command ({time.monotonic() - start:.1f} s)", flush=True)


def _try_release(release: int, path: Path) -> None:
    machine = this_machine().architecture
    target = next(one for one in TARGETS if (one.release, one.architecture) == (release, machine))
    package = BUILD / f"onceway_{__version__}+{target.name}.deb"
    userland = Userland(path)

    def say(step: str, since: float) -> None:
        print(f"Debian {release}: {step} ({time.monotonic() - since:.1f} s)", flush=True)

    start = time.monotonic()
    _bootstrap(userland, release, package)
    say("a bare userland", start)
    bare = userland.size_mb()

    # README's lines for the Pi; the first of them installs
    _, (install, *add), *rest = commands("A Pi in five minutes")
    first = [[install], add, *rest]
    with userland.booted():
        start = time.monotonic()
        (install,) = first.pop(0)
        _follow(userland, install, package)
        say("installed", start)
        size = userland.size_mb() - bare
        print(f"Debian {release}: package {package.stat().st_size / 1e6:.1f} MB, installed with all"
              f" that it pulls in {size:.1f} MB")  # fmt: skip
        if size > MOST_MB:
            raise Wrong(f"more than {MOST_MB} MB")
        _active(userland)
        exposed = {name: _exposure(userland, f"onceway-{name}") for name in ("gateway", "uplink")}
        print(f"Debian {release}: exposure of the services {exposed}", flush=True)
        if max(exposed.values()) > MOST_EXPOSED:
            raise Wrong(f"a service is exposed by more than {MOST_EXPOSED}")
        start = time.monotonic()
        userland.run("onceway", "--help")
        say("onceway --help", start)
        _add_board(userland)
        start = time.monotonic()
        _board(userland)
        for line in first.pop(0):
            _follow(userland, line, package)
        say("a board flashed, and it greets", start)
        _configure(userland)
        userland.run("systemctl", "restart", "onceway-gateway", "onceway-uplink")
        start = time.monotonic()
        _more_readings(userland, 2)
        say("readings land", start)
        for line in [line for block in first for line in block]:
            _follow(userland, line, package)
        _home_assistant(userland)
        _apart(userland)
        userland.run("chmod", "00770", "/var/lib/onceway")  # as it was in earlier versions

    with userland.booted():
        _board(userland)
        _active(userland)
        _more_readings(userland, 2)
        say("booted again", start)

        start = time.monotonic()
        userland.run("apt-get", "install", "--yes", "/root/next.deb")
        _expect(userland.run("onceway", "--version"), f"onceway {NEXT}")
        _active(userland)
        _more_readings(userland, 2)
        _expect_present(path, "var/lib/onceway/before-upgrade.db")
        _apart(userland)
        say("upgraded, readings go on", start)

        start = time.monotonic()
        userland.run(
            *("apt-get", "install", "--yes", "--allow-downgrades"),
            f"/root/{package.name}",
        )
        _expect(userland.run("onceway", "--version"), f"onceway {package.name.split('_')[1]}"[:9])
        _active(userland)
        _more_readings(userland, 2)
        say("rolled back, readings go on", start)
        _each_once(userland)

        userland.run("apt-get", "remove", "--yes", "onceway")
        _expect_absent(path, "usr/lib/onceway", "usr/bin/onceway")
        _expect_present(path, "etc/onceway/gateway.toml", "var/lib/onceway/gateway.db")
        output = userland.run("apt-get", "purge", "--yes", "onceway")
        _expect_absent(path, "etc/onceway")
        _expect_present(path, "var/lib/onceway/gateway.db", "srv/onceway/landing")
        _expect(output, "/var/lib/onceway stays: it holds readings")
        say("removed and purged; readings stay", start)

    with userland.booted():
        start = time.monotonic()
        userland.run("rm", "-rf", "/var/lib/onceway", "/srv/onceway", "/var/lib/board")
        shutil.copy(previous_package(target), path / "root/old.deb")
        userland.run("apt-get", "install", "--yes", "/root/old.deb")
        _board(userland)
        for line in add:
            _follow(userland, line, package)
        for met in Upgrades(userland, "old.deb", "next.deb").run():
            print(f"Debian {release}: {met}", flush=True)
        _more_readings(userland, 2)
        _each_once(userland)
        say(f"upgraded from {RELEASE}, rolled back, upgraded again: nothing lost or doubled", start)
        start = time.monotonic()
        Problems(userland, _board).run()
        say("begin and end of problems with boards are reported", start)
        userland.run("apt-get", "purge", "--yes", "onceway")

    with userland.booted():
        start = time.monotonic()
        Calls(userland, package).run()
        say("each call of dpkg, while the gateway runs", start)


def _exposure(userland: Userland, service: str) -> float:
    output = userland.run("systemd-analyze", "security", "--no-pager", service)
    found = re.search(r"exposure level for \S+: ([\d.]+)", output)
    if found is None:
        raise Wrong(f"systemd-analyze does not rate {service}: {output[-200:]}")
    return float(found[1])


def _follow(userland: Userland, line: str, package: Path) -> None:
    """Run a line of README with only these changes: the package's folder, the board's port, and a
    firmware that measures twice a second.
    """
    line = line.replace("sudo ", "").replace("./onceway_*.deb", f"--yes /root/{package.name}")
    userland.run(
        "sh",
        "-c",
        re.sub(r"(device add \S+)", r"\1 --port /run/board/tty --hex /root/sensor.hex", line),
    )


def _try_arm64(release: int, path: Path) -> None:
    """Try the package as far as qemu's emulation of one process allows: all compiled parts can be
    loaded, the commands answer, and a batch is made.
    """
    start = time.monotonic()
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None or this_machine().architecture == "arm64":
        return
    python = next(t.python for t in TARGETS if t.release == release)
    interpreter = f"usr/bin/python3.{python}"
    debootstrap(path, release, "--foreign", "--arch=arm64", include=f"python3.{python}")
    package = BUILD / f"onceway_{__version__}+deb{release}_arm64.deb"
    for file in [*path.glob("var/cache/apt/archives/*.deb"), package]:
        subprocess.run(["dpkg", "--extract", file, path], check=True)
    folders = [f"usr/lib/python3.{python}", f"usr/lib/python3.{python}/lib-dynload"]
    folders.append(f"usr/lib/onceway/lib/python3.{python}/site-packages")
    done = subprocess.run(
        [qemu, "-L", path, path / interpreter, "-c", ARM64_PROGRAM],
        env={
            "PYTHONHOME": str(path / "usr"),
            "PYTHONPATH": ":".join(str(path / folder) for folder in folders),
        },
        capture_output=True,
        text=True,
    )
    _expect(done.stdout + done.stderr[-2000:], "onceway aarch64 PAR1")
    print(f"Debian {release}: arm64 parts load ({time.monotonic() - start:.1f} s)", flush=True)


def _bootstrap(userland: Userland, release: int, package: Path) -> None:
    debootstrap(userland.path, release)
    shutil.copy("/etc/resolv.conf", userland.path / "etc/resolv.conf")
    shutil.copy(package, userland.path / "root")
    shutil.copy(BUILD / "hasty/uno/sensor.hex", userland.path / "root")
    repack(package, userland.path / "root/next.deb", NEXT)
    # the running userland has no network, so port 1883 is free there
    userland.outside("apt-get", "update")
    userland.outside("apt-get", "install", "--yes", "--download-only", f"/root/{package.name}")


def _add_board(userland: Userland) -> None:
    """Install the simulated board with the libraries that it needs."""
    folder = userland.path / "opt/board"
    folder.mkdir()
    program = BUILD / "firmware/sim/simboard"
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"=> (\S+)", output)
    for file in (program, BUILD / "firmware/sim/optiboot.hex", *libraries):
        if not re.search(r"/(libc|ld-linux.*)\.so", str(file)):
            shutil.copy(file, folder)
    drop_in = userland.path / "etc/systemd/system/onceway-gateway.service.d/board.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(DROP_IN)
    userland.run("systemctl", "daemon-reload")


def _board(userland: Userland) -> None:
    """Start the simulated board under the gateway's account, which then owns the board's port."""
    userland.run(
        *("systemd-run", "--unit=board", "--uid=onceway", "--property=RuntimeDirectory=board"),
        *("--property=StateDirectory=board", "--setenv=LD_LIBRARY_PATH=/opt/board"),
        *("/opt/board/simboard", "--control", "/run/board/control", "--pty-link", "/run/board/tty"),
        *("--bootloader", "/opt/board/optiboot.hex", "--flash", "/var/lib/board/flash"),
        *("--eeprom", "/var/lib/board/eeprom"),
    )
    userland.wait("the board's port", "test", "-e", "/run/board/tty")


def _configure(userland: Userland) -> None:
    (userland.path / "etc/onceway/gateway.toml").write_text(CONFIG)


def _home_assistant(userland: Userland) -> None:
    """Carry out README's section "Home Assistant". Check that other machines reach the listener."""
    file = userland.path / "etc/onceway/gateway.toml"
    text = file.read_text().replace("127.0.0.1:1883", ":1883")
    file.write_text(f"{text}\n[home_assistant]\n")
    for line in lines("Home Assistant"):
        line = line.replace("sudo ", "")
        if "user add" in line:
            line = f"echo 'correct horse' | {line} --password-stdin"
        userland.run("sh", "-c", line)
    _active(userland)
    all_addresses = "cat /proc/net/tcp* | grep 00000000:075B"  # port 1883
    userland.wait("a listener for other machines", "sh", "-c", all_addresses)


def _apart(userland: Userland) -> None:
    """Check that the uplink cannot replace or delete files of the gateway, and that the uplink runs
    without the gateway.
    """
    for act in ("rm -f {}", "mv {} {}.old", "touch {}.new", "cat {}"):
        words = act.replace("{}", "/var/lib/onceway/registry.db")
        userland.run("sh", "-c", f"! runuser -u onceway-uplink -- {words} 2>/dev/null")
    userland.run("systemctl", "stop", "onceway-gateway")
    userland.run("systemctl", "restart", "onceway-uplink")
    userland.run("systemctl", "start", "onceway-gateway")
    _active(userland)


def _active(userland: Userland) -> None:
    userland.wait("both services", "systemctl", "is-active", "onceway-gateway", "onceway-uplink")


def _sequences(userland: Userland) -> list[int]:
    """Return the sequence numbers of the board's readings that have landed."""
    found: list[int] = []
    for file in userland.path.glob("srv/onceway/landing/site-1/[!.]*/*.parquet"):
        rows = pq.read_table(file, columns=["topic", "sequence"]).to_pylist()
        found += [row["sequence"] for row in rows if row["topic"].startswith("sensors/")]
    return sorted(found)


def _more_readings(userland: Userland, count: int) -> None:
    before = len(_sequences(userland))
    try:
        wait_for("readings", lambda: "more" * (len(_sequences(userland)) >= before + count))
    except Wrong as wrong:
        raise Wrong(f"{wrong}\n{userland.run('journalctl', '--no-pager', '-n', '40')}") from None


def _each_once(userland: Userland) -> None:
    found = _sequences(userland)
    times = Counter(found)
    wrong = [number for number in range(1, max(found) + 1) if times[number] != 1]
    if wrong:
        raise Wrong(f"of {max(found)} readings, these did not land exactly once: {wrong[:20]}")


def _expect(output: str, text: str) -> None:
    if text not in output:
        raise Wrong(f"{text!r} was expected in: {output}")


def _expect_absent(path: Path, *names: str) -> None:
    if present := [name for name in names if os.path.lexists(path / name)]:
        raise Wrong(f"still there: {present}")


def _expect_present(path: Path, *names: str) -> None:
    if missing := [name for name in names if not (path / name).exists()]:
        raise Wrong(f"missing: {missing}")


if __name__ == "__main__":
    main()
