"""The trial of four problems, each of which must be reported once when it begins and once when it
ends: a second board with a name in use, a radio board, a modem that is gone, and a gateway without
an uplink.

In: a booted userland, and its trial of problems, which has the servers for notifications. Raises
Wrong.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from userland import Userland, Wrong, wait_for

RIG = (
    "export PYTHONPATH=/srv/rig:$(echo /usr/lib/onceway/lib/python3*/site-packages);"
    ' exec "$(ls /usr/bin/python3.* | head -1)" "$@"'
)
"""Shell command that starts Python with the package's libraries and the rig in its path."""
RADIO = "lora-1"
EVERY_S = 20
NO_UPLINK = 8
RESTART_S = 8.0
"""A wait, in seconds, that is longer than RestartSec of the uplink's unit."""
SETTLE_S = 30.0
"""Seconds for which a problem lasts in a trial. It must be reported only once in this time."""


class Problems(Protocol):
    """The trial of problems (`try_problems.py`)."""

    def board(self, command: str, unit: str) -> None: ...

    def well(self, name: str) -> None: ...

    def scene(
        self, state: str, begin: Callable[[], None], end: Callable[[], None], name: str
    ) -> None: ...

    def expect_report(self, event: str, problem: str) -> None: ...


class Others:
    """The trial. problems: reads the gateway's status and the notifications."""

    def __init__(self, userland: Userland, problems: Problems) -> None:
        self._userland = userland
        self._run = userland.run
        self._problems = problems

    def run(self) -> None:
        self._without_uplink()
        self._problem("two clients fight for this client identifier", self._clone, self._away)
        self._problem("roof-1: a second board with this name", self._other_key, self._away)
        self._radio()

    def _problem(self, words: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Let a problem begin and end, and check that both are reported once. words: a part of the
        problem's sentence.
        """
        before = len(self._posts())

        def events() -> str:
            posts = map(json.loads, self._posts()[before:])
            return " ".join(post["event"] for post in posts if words in str(post["problems"]))

        def look() -> str:
            done = self._userland.enter(("onceway", "status", "--json"))
            found = [row["what"] for row in json.loads(done.stdout).get("problems", [])]
            texts = [text for text in found if words in text]
            if texts and not done.returncode:
                raise Wrong(f"{texts}, but the exit code is 0")
            return "".join(texts)

        begin()
        wait_for(f"the problem {words!r}", look)
        wait_for(f"news of {words!r}", events)
        time.sleep(SETTLE_S)
        end()
        wait_for(f"the end of {words!r}", lambda: "" if look() else "over")
        wait_for(f"news of the end of {words!r}", lambda: events() * ("ends" in events()))
        if events() != "begins ends":
            raise Wrong(f"{words!r} was told as: {events()}")

    def _posts(self) -> list[str]:
        """Return the JSON objects that the webhook has received, one on each line."""
        return (self._userland.path / "srv/told/web").read_text().splitlines()

    def _plug_in(self, unit: str, *options: str) -> None:
        """Start a simulated board as a unit under the gateway's account, which then owns the
        board's port.
        """
        self._unit(
            unit,
            *("/opt/board/simboard", "--control", f"/run/{unit}/control", *options),
            *("--bootloader", "/opt/board/optiboot.hex", "--pty-link", f"/run/{unit}/tty"),
            *("--flash", f"/var/lib/{unit}/flash", "--eeprom", f"/var/lib/{unit}/eeprom"),
        )

    def _unit(self, unit: str, *command: str) -> None:
        self._run(
            *("systemd-run", f"--unit={unit}", "--uid=onceway"),
            *(f"--property=RuntimeDirectory={unit}", f"--property=StateDirectory={unit}"),
            *("--setenv=LD_LIBRARY_PATH=/opt/board", *command),
        )
        name = "ether" if unit == "air" else "tty"
        self._userland.wait(unit, "test", "-e", f"/run/{unit}/{name}")

    def _clone(self) -> None:
        """Start a second board with a copy of the first board's flash: it has the same name and
        key.
        """
        self._run("install", "-d", "-o", "onceway", "/var/lib/second")
        self._run("install", "-o", "onceway", "/var/lib/board/flash", "/var/lib/second/flash")
        self._plug_in("second")

    def _other_key(self) -> None:
        """Give the first board another key, so that only the second board has the old key."""
        self._run("onceway", "device", "rekey", "roof-1", "--port", "/run/board/tty")
        self._plug_in("second")

    def _away(self) -> None:
        self._run("sh", "-c", "systemctl stop second; systemctl reset-failed second || true")

    def _radio(self) -> None:
        """Check the problems of a radio board without power, and of a modem that is gone."""
        rig = self._userland.path / "srv/rig"
        hil = Path(__file__).parents[1] / "hil"
        shutil.copytree(hil, rig / "hil", ignore=shutil.ignore_patterns("__pycache__"))
        ether = "/run/air/ether"
        self._unit("air", "sh", "-c", RIG, "sh", "-m", "hil.air.server", "--socket", ether)
        modem = ("-m", "hil.air.kiss_modem", "--air", ether, "--port", "/run/modem/tty")
        self._unit("modem", "sh", "-c", RIG, "sh", *modem)
        self._problems.expect_report("ends", "/run/modem/tty: ")
        self._plug_in("aerial", "--radio", "--air", ether, "--name", RADIO, "--at", "100,0")
        where = ("--board", "uno-lora", "--port", "/run/aerial/tty")
        self._run("onceway", "device", "add", RADIO, *where)
        self._problems.board("unplug", "aerial")
        self._problems.well(RADIO)
        command = ("onceway", "device", "command", RADIO, f"interval {EVERY_S} s")
        self._run(*command, "--within", "300")
        self._run("onceway", "device", "expect", RADIO, f"{EVERY_S + 5}s")
        self._problems.well(RADIO)
        self._problems.scene(
            "silent",
            lambda: self._problems.board("power off", "aerial"),
            lambda: self._problems.board("power on", "aerial"),
            RADIO,
        )
        self._problem(
            "/run/modem/tty:",
            lambda: self._stop("modem"),
            lambda: self._unit("modem", "sh", "-c", RIG, "sh", *modem),
        )
        self._run("onceway", "device", "revoke", RADIO)
        for unit in ("modem", "air", "aerial"):
            self._stop(unit)

    def _stop(self, unit: str) -> None:
        self._run("sh", "-c", f"systemctl stop {unit}; systemctl reset-failed {unit} || true")

    def _without_uplink(self) -> None:
        """Check that an uplink without the section [uplink] ends, is not restarted, and does not
        count as failed.
        """
        self._run("systemctl", "restart", "onceway-uplink")
        show = ("systemctl", "show", "onceway-uplink", "--property")

        def look() -> str:
            return self._run(*show, "ActiveState,ExecMainStatus,Result,NRestarts")

        wait_for("the end of the uplink", lambda: look() if "=inactive" in look() else "")
        before = look()
        if f"ExecMainStatus={NO_UPLINK}" not in before or "Result=success" not in before:
            raise Wrong(f"an uplink without [uplink]: {before}")
        time.sleep(RESTART_S)
        if look() != before:
            raise Wrong(f"an uplink without [uplink] is started again: {look()}")
