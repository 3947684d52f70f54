"""A machine for the maintainer scripts of the Debian package. A folder stands for `/`, and its
programs only log their arguments. Its `systemctl` keeps the state of each unit in a file.

In: the state of each unit, and the calls of one run of dpkg. Out: the states afterwards.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

GATEWAY, UPLINK = "onceway-gateway.service", "onceway-uplink.service"
TIMER, BACKUP = "onceway-backup.timer", "onceway-backup.service"
UNITS = (GATEWAY, UPLINK, TIMER, BACKUP)
_FOLDERS = ("etc", "run", "srv", "usr/lib", "usr/share", "var/lib")
_SYSTEMCTL = r"""#!/bin/sh
echo "systemctl $*" >>"$ROOT/log"
command=; units=; property=; now=
for word in "$@"; do
    case $word in
    --now) now=yes ;;
    -*) ;;
    *) if [ -z "$command" ]; then command=$word; else units="$units $word"; fi ;;
    esac
done
failed=0
for unit in $units; do
    case $unit in *.*) ;; *) unit=$unit.service ;; esac
    active=$ROOT/units/$unit.active
    link=$(echo "$ROOT"/etc/systemd/system/*.wants/"$unit")
    case $unit in *.timer) wants=timers ;; *) wants=multi-user ;; esac
    known() { [ -e "$ROOT/usr/lib/systemd/system/$unit" ]; }
    masked() { [ -L "$ROOT/etc/systemd/system/$unit" ]; }
    case $command in
    is-active)
        state=$(cat "$active" 2>/dev/null || echo inactive); echo "$state"
        [ "$state" = active ] || failed=3
        ;;
    is-enabled)
        if masked; then echo masked; failed=1
        elif ! known; then echo not-found; failed=4
        elif [ "$unit" = onceway-backup.service ]; then echo static
        elif [ -L "$link" ]; then echo enabled
        else echo disabled; failed=1; fi
        ;;
    start)
        if masked || ! known; then echo "Failed to start $unit" >&2; failed=1
        else echo active >"$active"; fi
        ;;
    enable)
        if masked || ! known; then echo "Failed to enable $unit" >&2; failed=1
        else
            mkdir -p "$ROOT/etc/systemd/system/$wants.target.wants"
            ln -sf /x "$ROOT/etc/systemd/system/$wants.target.wants/$unit"
        fi
        ;;
    disable) rm -f "$link" ;;
    show) cat "$ROOT/units/$unit.stopped" 2>/dev/null || echo ;;
    esac
    if [ "$command" = stop ] || [ -n "$now" ]; then
        if [ -e "$active" ]; then echo "@$(date +%s)" >"$ROOT/units/$unit.stopped"; fi
        rm -f "$active"
    fi
done
exit $failed
"""
_RECORDER = '#!/bin/sh\necho "{0} $*" >>"$ROOT/log"\n[ ! -e "$ROOT/fails/{0}" ]\n'
_RECORDED = (
    *("systemd-sysusers", "systemd-tmpfiles", "udevadm", "runuser", "onceway"),
    *("find", "install", "python3"),
)


@dataclass(frozen=True)
class Call:
    """A call of a maintainer script by dpkg. scripts: folder with the script. words: the script's
    arguments. fails: "at once" if dpkg cannot run the script, "at the end" if its last line fails,
    or empty.
    """

    scripts: Path
    name: str
    words: str
    fails: str = ""


@dataclass(frozen=True)
class State:
    """The state of a unit, as `systemctl` shows it."""

    enabled: bool = True
    active: str = "active"
    masked: bool = False


class Machine:
    """A machine. root: the folder that stands for `/`. log: all commands that the scripts
    have run.
    """

    def __init__(self, root: Path, booted: bool = True) -> None:
        self.root = root
        for folder in (*_FOLDERS, "bin", "units", "fails", "var/lib/onceway", "srv/onceway"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "etc/systemd/system").mkdir(parents=True)
        if booted:
            (root / "run/systemd/system").mkdir(parents=True)
        for name in _RECORDED:
            self._program(root / "bin" / name, _RECORDER.format(name))
        self._program(root / "bin/systemctl", _SYSTEMCTL)
        (root / "usr/lib/onceway/bin").mkdir(parents=True)
        (root / "usr/lib/onceway/bin/python3").symlink_to(root / "bin/python3")
        self.unpack()

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    @property
    def log(self) -> str:
        file = self.root / "log"
        return file.read_text() if file.exists() else ""

    def fail(self, program: str) -> None:
        """Let each later call of a program fail, as on a full disk."""
        (self.root / "fails" / program).touch()

    def unpack(self) -> None:
        """Add the files of the package to the machine."""
        folder = self.root / "usr/lib/systemd/system"
        folder.mkdir(parents=True, exist_ok=True)
        for unit in UNITS:
            (folder / unit).touch()
        (self.root / "var/lib/dpkg/info").mkdir(parents=True, exist_ok=True)
        (self.root / "var/lib/dpkg/info/onceway.list").touch()

    def remove(self) -> None:
        """Remove the files of the package from the machine."""
        for unit in UNITS:
            (self.root / "usr/lib/systemd/system" / unit).unlink()

    def put(self, unit: str, state: State) -> None:
        """Set the state of a unit. Its recorded last change is long before dpkg runs."""
        active = self.root / f"units/{unit}.active"
        active.unlink(missing_ok=True)
        if state.active != "inactive":
            active.write_text(f"{state.active}\n")
        (self.root / f"units/{unit}.stopped").write_text("@1000000000\n")
        target = "timers" if unit == TIMER else "multi-user"
        link = self.root / f"etc/systemd/system/{target}.target.wants" / unit
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        if state.enabled:
            link.symlink_to("/x")
        if state.masked:
            (self.root / "etc/systemd/system" / unit).symlink_to("/dev/null")

    def state(self, unit: str) -> State:
        active = self.root / f"units/{unit}.active"
        wants = (self.root / "etc/systemd/system").glob("*.wants/*")
        return State(
            unit in [path.name for path in wants],
            active.read_text().strip() if active.exists() else "inactive",
            (self.root / "etc/systemd/system" / unit).is_symlink(),
        )

    def dpkg(self, *calls: Call | str) -> str:
        """Simulate one run of dpkg. Return the output of the maintainer scripts. calls: the calls
        of scripts in order, with "unpack" or "remove" for what dpkg does to the package's files
        between them. Raises AssertionError if a script fails that should not.
        """
        lines = ["set -e"]
        for number, call in enumerate(calls):
            if isinstance(call, str):
                run = {"unpack": "touch", "remove": "rm -f"}[call]
                lines += [f"{run} {self.root}/usr/lib/systemd/system/{unit}" for unit in UNITS]
                lines.append(f"touch {self.root}/var/lib/dpkg/info/onceway.list")
            elif call.fails != "at once":
                script = self.root / f"script-{number}"
                script.write_text(self._here((call.scripts / call.name).read_text()))
                lines.append(f"dash {script} {call.words} || {'true' if call.fails else 'exit 9'}")
        done = subprocess.run(
            ["dash", "-c", "\n".join(lines)],
            env={"ROOT": str(self.root), "PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _here(self, script: str) -> str:
        """Return the text of a script with the machine's folder in front of each absolute path."""
        folders = "|".join(_FOLDERS)
        return re.sub(rf"(?<![\w.}}/])/({folders})(?=/)", rf"{self.root}/\1", script)
