"""All calls by which dpkg runs the package's scripts (Debian Policy 6.5 to 6.8), with real dpkg and
systemd. Before each call the gateway runs. Afterwards it runs as before, or not at all, as dpkg's
state demands, and services that a user has switched off stay off.

In: a booted userland in which the package's dependencies are installed, and the package. Out: a
userland without the package. Raises Wrong if a service is in another state than expected, or if
dpkg has not made each of these calls.
"""

import shutil
import tempfile
from pathlib import Path

from repack import pack, repack
from userland import Userland, Wrong

FIRST, SECOND = "9.9.8", "9.9.9"
LOG, FAIL = "/var/log/onceway-calls", "/root/fail"
SERVICES = ("onceway-gateway", "onceway-uplink")
CALLS = {
    "preinst": {"install", "upgrade", "abort-upgrade"},
    "postinst": {"configure", "abort-upgrade", "abort-remove", "abort-deconfigure"},
    "prerm": {"remove", "upgrade", "failed-upgrade", "deconfigure"},
    "postrm": {
        *("remove", "purge", "upgrade", "failed-upgrade", "disappear"),
        *("abort-install", "abort-upgrade"),
    },
}
"""First arguments with which dpkg calls each script. `triggered` is left out, because the package
has no triggers.
"""
_HOOK = """
echo "{name} $*" >>{log}
if [ -e {fail}/{name}-$1 ]; then exit 1; fi
"""
_OTHER = """\
Package: {name}
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@localhost>
Description: stands in the way of onceway
{relation}
"""


def _with_hooks(folder: Path) -> None:
    """Change the maintainer scripts of an unpacked package: each logs its call, and fails if the
    folder FAIL has a file for this call.
    """
    for script in Path(folder, "DEBIAN").glob("p*"):
        hook = _HOOK.format(name=script.name, log=LOG, fail=FAIL)
        # postinst fails after its first lines: the later ones must not depend on the hook
        before = "\nif [ $call = configure ]" if script.name == "postinst" else "\nset -e\n"
        head, found, rest = script.read_text().partition(before)
        if not found:
            raise Wrong(f"{script.name} has no line {before.strip()!r}")
        script.write_text(f"{head}{hook}{found}{rest}")


def _as_taker(folder: Path) -> None:
    """Turn an unpacked copy of the tested package into the package `taker`. It has no scripts, and
    takes over all files of the tested package.
    """
    control = folder / "DEBIAN/control"
    text = control.read_text().replace("Package: onceway", "Package: taker\nReplaces: onceway")
    control.write_text(text)
    for script in CALLS:
        (folder / "DEBIAN" / script).unlink()


class Calls:
    """The trial of all calls by which dpkg runs the package's scripts. At its end, the package is
    not installed.
    """

    def __init__(self, userland: Userland, package: Path) -> None:
        self._userland = userland
        self._root = userland.path / "root"
        repack(package, self._root / "first.deb", FIRST, _with_hooks)
        repack(package, self._root / "second.deb", SECOND, _with_hooks)
        repack(package, self._root / "taker.deb", SECOND, _as_taker)
        broken = self._root / "broken.deb"
        shutil.copy(self._root / "second.deb", broken)
        with broken.open("r+b") as file:
            file.truncate(broken.stat().st_size * 2 // 3)
        for name, relation in (
            ("rival", "Conflicts: onceway\nReplaces: onceway"),
            ("breaker", "Breaks: onceway"),
            ("flasher", "Conflicts: avrdude\nReplaces: avrdude"),
        ):
            self._other(name, relation)

    def _other(self, name: str, relation: str) -> None:
        """Make a package `name` with this relation to the tested package. Its preinst fails if the
        folder FAIL has a file with the package's name.
        """
        with tempfile.TemporaryDirectory() as folder:
            control = Path(folder, "DEBIAN")
            control.mkdir()
            (control / "control").write_text(_OTHER.format(name=name, relation=relation))
            (control / "preinst").write_text(f"#!/bin/sh\n[ ! -e {FAIL}/{name} ]\n")
            (control / "preinst").chmod(0o755)
            pack(Path(folder), self._root / f"{name}.deb")

    def run(self) -> None:
        self._dpkg("--install", "first.deb")
        self._upgrades_that_fail()
        self._full_disk()
        self._upgrades_that_go_on()
        self._what_a_user_chose()
        self._removals()
        self._other_packages()
        self._installations()
        made: dict[str, set[str]] = {name: set() for name in CALLS}
        for line in (self._userland.path / LOG[1:]).read_text().splitlines():
            name, call, *_ = line.split()
            made[name].add(call)
        if made != CALLS:
            raise Wrong(f"dpkg has made these calls: {made}")

    def _upgrades_that_fail(self) -> None:
        self._dpkg("--install", "broken.deb", fails=True)
        for failing in (
            ("preinst-upgrade",),
            ("prerm-upgrade", "prerm-failed-upgrade"),
            ("postrm-upgrade", "postrm-failed-upgrade"),
        ):
            self._dpkg("--install", "second.deb", failing=failing, fails=True)

    def _full_disk(self) -> None:
        """Upgrade on a disk with room for a tenth of the new files."""
        home = "/usr/lib/onceway"
        size = int(self._userland.run("du", "--summarize", "--block-size=1M", home).split()[0])
        small = f"mount -t tmpfs -o size={size * 11 // 10}M,mode=755 small {home}"
        self._userland.run(
            "sh", "-c", f"cp -a {home} /root/all && {small} && cp -a /root/all/. {home}"
        )
        self._dpkg("--install", "second.deb", fails=True)
        self._userland.run("systemctl", "stop", *SERVICES)
        self._userland.run("sh", "-c", f"umount {home} && rm -r /root/all")
        self._userland.run("systemctl", "start", *SERVICES)

    def _upgrades_that_go_on(self) -> None:
        for failing in ((), ("prerm-upgrade",), ("postrm-upgrade",)):
            self._dpkg("--install", "second.deb", failing=failing, version=SECOND)
            self._dpkg("--install", "first.deb")
        self._dpkg("--install", "second.deb", failing=("postinst-configure",), fails=True,
                   version=SECOND, status="half-configured")  # fmt: skip
        self._dpkg("--configure", "onceway", version=SECOND)
        self._dpkg("--unpack", "first.deb", status="unpacked", active=())
        self._dpkg("--configure", "onceway")

    def _what_a_user_chose(self) -> None:
        """Upgrade, and fail to upgrade, after `stop`, `disable` and `mask`: each choice stays."""
        gateway, uplink = SERVICES
        for choice, active in (
            (("stop", uplink), (gateway,)),
            (("disable", "--now", *SERVICES), ()),
            (("mask", "--now", uplink), (gateway,)),
        ):
            self._userland.run("systemctl", *choice)
            before = self._enabled()
            for file, fails in (("broken.deb", True), ("first.deb", False)):
                self._dpkg("--install", file, active=active, fails=fails)
                if self._enabled() != before:
                    raise Wrong(f"{choice}: {before} has become {self._enabled()}")
            self._userland.run("systemctl", "unmask", *SERVICES)
            self._userland.run("systemctl", "enable", "--now", *SERVICES)

    def _removals(self) -> None:
        self._dpkg("--remove", "onceway", failing=("prerm-remove",), fails=True)
        for again, version in (("first.deb", FIRST), ("second.deb", SECOND)):
            self._userland.run("apt-get", "remove", "--yes", "onceway")
            self._check("removed", status="config-files", active=())
            self._userland.run("apt-get", "install", "--yes", f"/root/{again}")
            self._check("installed again", version=version)
        self._dpkg("--install", "first.deb")
        self._userland.run("systemctl", "disable", SERVICES[1])
        self._dpkg("--remove", "onceway", status="config-files", active=())
        self._dpkg("--install", "first.deb", active=SERVICES[:1])
        self._userland.run("systemctl", "enable", "--now", SERVICES[1])

    def _other_packages(self) -> None:
        for name in ("rival", "breaker", "flasher"):
            self._dpkg(
                "--auto-deconfigure", "--install", f"{name}.deb", failing=(name,), fails=True
            )
        for name in ("breaker", "flasher"):  # dpkg cannot configure onceway again, and reports it
            self._dpkg("--auto-deconfigure", "--install", f"{name}.deb", fails=True,
                       status="half-configured", active=())  # fmt: skip
            self._userland.run("dpkg", "--remove", name)
            self._userland.run("apt-get", "install", "--yes", "--fix-broken")
            self._dpkg("--configure", "--pending")
        self._dpkg("--auto-deconfigure", "--install", "rival.deb",
                   status="config-files", active=())  # fmt: skip
        self._userland.run("dpkg", "--remove", "rival")

    def _installations(self) -> None:
        self._dpkg("--install", "second.deb", failing=("preinst-install",), fails=True,
                   status="config-files", version=None, active=())  # fmt: skip
        self._dpkg("--purge", "onceway", status="not-installed", version=None, active=())
        wants = (self._userland.path / "etc/systemd/system").glob("*.wants/onceway*")
        if remaining := [path.name for path in wants]:
            raise Wrong(f"a purge leaves {remaining}")
        self._dpkg("--install", "first.deb", failing=("preinst-install",), fails=True,
                   status="not-installed", version=None, active=())  # fmt: skip
        self._dpkg("--install", "first.deb")
        self._dpkg("--install", "taker.deb", status="not-installed", version=None, active=())
        self._userland.run("dpkg", "--purge", "taker")

    def _enabled(self) -> list[str]:
        output = self._userland.run(
            "sh", "-c", f"systemctl is-enabled {' '.join(SERVICES)} || true"
        )
        return output.split()

    def _dpkg(
        self,
        *words: str,
        failing: tuple[str, ...] = (),
        fails: bool = False,
        version: str | None = FIRST,
        status: str = "installed",
        active: tuple[str, ...] = SERVICES,
    ) -> None:
        """Run dpkg, and check the package and the services afterwards. failing: script calls that
        are made to fail, such as `preinst-install`. fails: whether dpkg must fail. version, status,
        active: the expected version, dpkg's status, and the running services.
        """
        fail = self._userland.path / FAIL[1:]
        fail.mkdir()
        for call in failing:
            (fail / call).touch()
        words = tuple(f"/root/{word}" if word.endswith(".deb") else word for word in words)
        command = f"dpkg {' '.join(words)}"
        # a service that is about to start is not waited for
        self._userland.run("sh", "-c", f"! {command}" if fails else command)
        shutil.rmtree(fail)
        title = f"{command} ({', '.join(failing)})" if failing else command
        self._check(title, version=version, status=status, active=active)

    def _check(
        self,
        call: str,
        *,
        version: str | None = FIRST,
        status: str = "installed",
        active: tuple[str, ...] = SERVICES,
    ) -> None:
        shown = "dpkg-query -W -f '${db:Status-Status} ${Version}' onceway 2>/dev/null || true"
        found, _, number = self._userland.run("sh", "-c", shown).partition(" ")
        if (found or "not-installed") != status:
            raise Wrong(f"{call}: the package is {found}, not {status}")
        if status == "installed" and number != version:
            raise Wrong(f"{call}: version {number} is there, not {version}")
        states = "systemctl show --property=ActiveState --value"
        for unit in SERVICES:
            state = self._userland.run(*states.split(), unit).strip()
            if (state == "active") != (unit in active):
                raise Wrong(f"{call}: {unit} is {state}")
