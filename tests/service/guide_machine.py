"""A machine like that of a reader of the guides. The package is installed, and the source tree is
cloned to the home of the user pi. Lines of the guides run there as they are written.

In: lines of shell. Out: exit codes, and the output on the terminal. The machine is a mount
namespace with overlays, so files of the real machine do not change. It also is a network namespace,
so each port is free. `sudo` and prompts work as on a terminal. systemctl works without systemd: it
enables units and refuses units that do not exist. The test starts and stops the gateway instead.
"""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import time
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path

from tests.service.process import GatewayProcess

ROOT = Path(__file__).parents[2]
PASSWORD = "PASSWORD"
CLONE = "/home/pi/onceway"
LINE_S = 30
"""Time limit in seconds for a line, on a busy machine."""

PI = 4711
_ONCEWAY = f"#!/bin/sh\nPYTHONPATH={CLONE} exec {CLONE}/.venv/bin/python -m gateway "
_AS_PI = re.compile(r"(?:scp|rm|curl|mosquitto_sub|mosquitto_pub) ")
_UNTIL_A_LINE = re.compile(r"mosquitto_sub ")
"""Programs that never end. The test ends them after their first line of output."""

_ANSWERS = (
    (r"(?:assword|assphrase|onfirmation): $", f"{PASSWORD}\n"),
    (r"\[y/N\]: $", "y\n"),
)
_SETUP = """
set -e
mount -t tmpfs none "$1"
for at in etc usr var home srv mnt; do
    mkdir "$1/$at" "$1/$at.work"
    mount -t overlay none -o "lowerdir=/$at,upperdir=$1/$at,workdir=$1/$at.work" "/$at"
done
mount -t tmpfs none /run
mkdir -p /run/sshd /home/pi/onceway /home/pi/.ssh /mnt/usb /usr/local/bin "$1/clone" "$1/clone.work"
mount -t overlay none -o "lowerdir=$2,upperdir=$1/clone,workdir=$1/clone.work" /home/pi/onceway
cd /home/pi/onceway
ip link set lo up
for address in 10.0.0.11 10.0.0.12 10.0.0.13; do ip address replace $address/32 dev lo; done
echo 'pi:x:4711:4711::/home/pi:/bin/sh' >>/etc/passwd
echo 'pi:x:4711:' >>/etc/group
echo 'pi:*:19000:0:99999:7:::' >>/etc/shadow
printf '%s"$@"\\n' "$3" | tee /usr/local/bin/onceway >.venv/bin/onceway
printf '#!/bin/sh\\nSUDO_USER=pi SUDO_UID=4711 SUDO_GID=4711 exec "$@"\\n' >/usr/local/bin/sudo
cat >/usr/local/bin/systemctl <<'END'
#!/bin/bash
for word; do [ "$word" = --now ] || words+=("$word"); done
exec /usr/bin/systemctl "${words[@]}"
END
chmod 755 /usr/local/bin/onceway /usr/local/bin/sudo /usr/local/bin/systemctl .venv/bin/onceway
install -D -m 644 systemd/onceway.sysusers /usr/lib/sysusers.d/onceway.conf
install -D -m 644 systemd/onceway.tmpfiles /usr/lib/tmpfiles.d/onceway.conf
install -m 644 systemd/*.service systemd/*.timer /usr/lib/systemd/system
systemd-sysusers onceway.conf
systemd-tmpfiles --create onceway.conf
install -m 640 -g onceway systemd/gateway.toml /etc/onceway/gateway.toml
chown -R pi: /home/pi/.ssh && chown pi: /home/pi /home/pi/onceway
echo ready
exec sleep infinity
"""


class Machine:
    """A machine on which a reader of a guide types its command lines. gateway: the running gateway,
    or None.
    """

    def __init__(self, folder: Path, beside: "Machine | None" = None) -> None:
        """Set up the machine. beside: another machine, whose network this one shares."""
        folder.mkdir()
        own = ["unshare", "--mount", "--net"]
        if beside is not None:
            own = ["nsenter", f"--target={beside._holder.pid}", "--net", "unshare", "--mount"]
        self.gateway: GatewayProcess | None = None
        self._at = CLONE
        """Working directory in which the next line of the guide runs."""
        self._holder = subprocess.Popen(
            [*own, "sh", "-c", _SETUP, "setup", folder, ROOT, _ONCEWAY],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._holder.stdout is not None
        said = ""
        for line in self._holder.stdout:
            said += line
            if line == "ready\n":
                return
        raise AssertionError(f"the machine is not set up: {said}")

    def inside(self, *words: str) -> list[str]:
        """Return the command that runs these words on the machine."""
        return ["nsenter", f"--target={self._holder.pid}", "--mount", "--net", *words]

    def root(self, script: str) -> str:
        """Run a script of the test on the machine as root. Return its output."""
        line = ["sh", "-ec", f"cd {CLONE}\n{script}"]
        return subprocess.run(
            self.inside(*line), check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def line(self, text: str, typed: str = "") -> tuple[int, str]:
        """Run a line of a guide on a terminal, and answer its prompts. Return exit code and output.
        typed: text that is typed without a prompt. A line that ends with & keeps running until the
        machine ends.
        """
        at = self._at
        if found := re.fullmatch(r"cd (\S+)", text):
            self._at += f"/{found[1]}"
        if text.endswith("&"):
            return self._begin(text)
        who = ["setpriv", f"--reuid={PI}", f"--regid={PI}", "--clear-groups"]
        who = who if _AS_PI.match(text) else []
        master, slave = pty.openpty()
        words = self.inside("setsid", "--ctty", "--wait", *who, "bash", "-c", f"cd {at}; {text}")
        path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, "HOME": "/home/pi" if who else "/root", "SYSTEMD_OFFLINE": "1"}
        env |= {"LANG": "C.UTF-8", "COLUMNS": "200"}
        process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        if typed:
            os.write(master, typed.encode())
        try:
            said, seen = "", 0
            end = time.monotonic() + LINE_S
            while time.monotonic() < end:
                if select.select([master], [], [], 1)[0]:
                    try:
                        said += os.read(master, 65_536).decode(errors="replace")
                    except OSError:  # raised when the last process has closed the terminal
                        break
                    for prompt, answer in _ANSWERS:
                        if re.search(prompt, said[seen:]):
                            seen = len(said)
                            os.write(master, answer.encode())
                    if _UNTIL_A_LINE.match(text) and "\n" in said:
                        return int("rror" in said), said
            with suppress(subprocess.TimeoutExpired):
                return process.wait(5), said
            return -1, said
        finally:
            process.kill()
            process.wait()
            os.close(master)

    def _begin(self, text: str) -> tuple[int, str]:
        """Start a simulated board in the background, and wait until its port exists."""
        link = re.search(r"--pty-link (\S+)", text)
        assert link, "no other program of the guides runs in the background"
        self.root(
            f"cd {self._at}\n{text[:-1]} >/dev/null 2>&1 </dev/null &\necho $! >>/run/background\n"
            f"for second in $(seq 20); do [ ! -e {link[1]} ] || exit 0; sleep 1; done; exit 1"
        )
        return 0, ""

    def serve_ssh(self) -> None:
        """Run an SSH server on which the user pi can log in with a key."""
        self.root(
            "ssh-keygen -q -t ed25519 -N '' -f /home/pi/.ssh/id_ed25519\n"
            "cp /home/pi/.ssh/id_ed25519.pub /home/pi/.ssh/authorized_keys\n"
            "ssh-keygen -q -t ed25519 -N '' -f /run/host\n"
            "printf '10.0.0.* %s\\n' \"$(cat /run/host.pub)\" >/home/pi/.ssh/known_hosts\n"
            "chown -R pi: /home/pi/.ssh\n"
            "/usr/sbin/sshd -h /run/host -o UsePAM=no -o PidFile=/run/sshd.pid >/dev/null 2>&1"
        )

    async def start(self) -> None:
        """Start the gateway with the account and the command of its unit."""
        unit = ConfigParser(strict=False, interpolation=None)
        unit.read(ROOT / "systemd/onceway-gateway.service")
        user, line = unit["Service"]["User"], unit["Service"]["ExecStart"]
        as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        process = await asyncio.create_subprocess_exec(
            *self.inside(*as_user, "sh", "-c", f"umask 77; cd {CLONE}; exec {line}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
        self.gateway = GatewayProcess(process)
        await self.gateway.ready()

    async def stop(self, number: int = signal.SIGTERM) -> None:
        if self.gateway is not None:
            await self.gateway.end(number)
            self.gateway = None

    async def end(self) -> None:
        await self.stop(signal.SIGKILL)
        for file in ("sshd.pid", "background"):
            self.root(f"[ ! -f /run/{file} ] || kill $(cat /run/{file})")
        self._holder.kill()
        self._holder.wait()
