"""`python -m tests.clients`: clients that people use, tried. Out: the table in `TABLE.md`.

Each client publishes one message at QoS 1 and 2 to a server that answers with one reason code, or
with DISCONNECT 0x97. A client that is not installed is left out: `npm install mqtt` in
`build/clients` installs mqtt.js.
"""

import asyncio
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from gateway.mqtt.packets import Disconnect
from gateway.mqtt.reason import ReasonCode as R
from tests.publisher.server import Server, server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = HERE / "TABLE.md"
REASONS = (R.NOT_AUTHORIZED, R.TOPIC_NAME_INVALID, R.QUOTA_EXCEEDED)
WITHIN_S = 20
HEAD = """# Clients that people use

Written by `python -m tests.clients` (part of `make soak`).

## The program's view of a refused message

The server refuses each message for good, or ends the first connection with DISCONNECT 0x97. The
number counts how often the client sends the message. **Beside a reason code, "published" is a
loss**: the program hears of success, and the message is nowhere.

| client | QoS | 0x87 | 0x90 | 0x97 | DISCONNECT 0x97 |
|---|---|---|---|---|---|
"""
FOOT = """
Onceway spares such clients: at 0x97 it ends the connection of a client that does not ask for reason
codes. 0x87 and 0x90 are final. The project's publisher sends again until the message is taken.
"""


def clients() -> dict[str, list[str]]:
    """Return the command of each client that is here; the port and the QoS are filled in."""
    found = {
        f"{name} {version(package)}": [sys.executable, str(HERE / "drivers" / file), "PORT", "QOS"]
        for name, package, file in (
            ("paho", "paho-mqtt", "with_paho.py"),
            ("aiomqtt", "aiomqtt", "with_aiomqtt.py"),
        )
    }
    if (ROOT / "build" / "clients" / "node_modules" / "mqtt").exists():
        driver = str(HERE / "drivers" / "with_mqttjs.cjs")
        found["mqtt.js 5"] = ["node", driver, "PORT", "QOS"]
    if tool := shutil.which("mosquitto_pub"):
        options = ["-p", "PORT", "-q", "QOS", "-V", "5", "-i", "probe", "-t", "t", "-m", "x"]
        found["mosquitto_pub"] = [tool, *options]
    return found


async def report(own: Server, command: list[str], qos: int) -> str:
    """Run a client once; return its report, and how often it sent the message."""
    before = len(own.publishes)
    words = [{"PORT": str(own.port), "QOS": str(qos)}.get(word, word) for word in command]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, error = await asyncio.wait_for(process.communicate(), WITHIN_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        said = f"nothing for {WITHIN_S} s"
    else:
        lines = (out + error).decode().split("\n")
        said = lines[0].rstrip(".") or "published"
        said += "" if said.startswith(("published", "not")) else f", exit code {process.returncode}"
    return f"{said} ({len(own.publishes) - before} ×)"


async def cell(command: list[str], reason: R | None, qos: int) -> str:
    """reason: None for DISCONNECT 0x97 in the place of the first answer."""
    async with server() as own:
        if reason is None:
            own.farewell = Disconnect(R.QUOTA_EXCEEDED)
        else:
            own.refuse = lambda packet: reason
            own.complete = lambda packet: R.PACKET_IDENTIFIER_NOT_FOUND
        return await report(own, command, qos)


async def main() -> None:
    os.environ["NODE_PATH"] = str(ROOT / "build" / "clients" / "node_modules")
    text = [HEAD]
    for name, command in clients().items():
        for qos in (1, 2):
            cells = [await cell(command, reason, qos) for reason in (*REASONS, None)]
            text.append(f"| {name} | {qos} | {' | '.join(cells)} |\n")
    text.append(FOOT)
    PAGE.write_text("".join(text), encoding="utf8")
    print("".join(text))


if __name__ == "__main__":
    asyncio.run(main())
