"""Commands `onceway device …` that the gateway runs for people who may use the control socket, but
may not write its device registry.

In: the words after `onceway device`. Out: the lines that the command prints, and its exit code. The
command runs in a separate process, under the gateway's account.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.boards.admission import FILE
from gateway.commands.control_client import LEND_S
from gateway.commands.through_gateway import VERBS
from gateway.errors import OncewayError
from gateway.system.logs import printable

ALIVE_S = 5.0
"""If a command prints nothing for this many seconds, an empty row shows that it still runs."""
MOST_WORDS = 64
_FORBIDDEN = ("--registry", "--config", "--hex", "--foreign")
_LONGEST_LINE = 1 << 20


def parse(text: str) -> list[str]:
    """Return the words of a request. text: their JSON. Raises ValueError."""
    words: list[str] = json.loads(text)
    fine = isinstance(words, list) and 0 < len(words) <= MOST_WORDS
    if not fine or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError("`words` must be a list of strings that is not empty")
    if words[0] not in VERBS or any(word.partition("=")[0] in _FORBIDDEN for word in words):
        raise ValueError("`words` must be a command of `onceway device` that needs no file")
    return words


async def run(folder: Path, words: list[str]) -> AsyncIterator[dict[str, Any]]:
    """Run `onceway device`. Yield rows of the control socket. Raises OncewayError after LEND_S."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway", "device", words[0]),
        *("--registry", str(folder / FILE), *words[1:]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1000)
    readers = [
        asyncio.create_task(_read(stream, name, lines))
        for name, stream in (("out", process.stdout), ("err", process.stderr))
        if stream is not None
    ]
    try:
        async with asyncio.timeout(LEND_S):
            while not lines.empty() or not all(reader.done() for reader in readers):
                try:
                    yield await asyncio.wait_for(lines.get(), 0.2 if lines.empty() else ALIVE_S)
                except TimeoutError:
                    yield {}
            yield {"code": await process.wait()}
    except TimeoutError:
        raise OncewayError("the command took too long, and was stopped", words[0]) from None
    finally:
        for reader in readers:
            reader.cancel()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


async def _read(
    stream: asyncio.StreamReader, name: str, lines: "asyncio.Queue[dict[str, Any]]"
) -> None:
    while line := await stream.readline():
        await lines.put({"to": name, "line": printable(line.decode(errors="replace").rstrip("\n"))})
