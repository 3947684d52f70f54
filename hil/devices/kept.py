"""`python -m hil.devices.kept`: run a program that publishes with the project's own publisher
(`gateway/publisher`), and kill the program several times. SIGTERM ends both.

In: as for `hil/clients/publisher.py`, and a number of kills. Out: the line protocol of
`hil/clients/telling.py`. The publishing program is a separate process with a journal. The number of
the message at which SIGKILL ends this process is drawn from the seed. The next process continues
from the journal.

About half of the kills simulate a power cut: the journal is on a separate disk, which then loses
the pages that the kernel had not written. If the machine allows no such disk (`loop_disk.py`), the
rig appends random bytes to the journal's WAL instead, like a torn commit.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from os import _exit, read
from pathlib import Path
from signal import SIGSTOP, SIGTERM, signal
from typing import Annotated

import typer

from hil.clients.options import (
    Messages,
    Name,
    PayloadBytes,
    PayloadForm,
    PerS,
    Port,
    Seed,
)
from hil.clients.payloads import Form, payload_of
from hil.clients.telling import INCARNATION, tell, topic_of
from hil.faults.loop_disk import LoopDisk
from onceway_publisher import Publication, Publisher

DOWN_S = 0.3  # from a kill to the next process
WAIT_S = 600.0  # longest wait for room in the journal, or for the gateway at the end

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Port,
    name: Name,
    messages: Messages,
    payload: PayloadForm,
    payload_bytes: PayloadBytes,
    qos: Annotated[int, typer.Option(min=2, max=2)],
    per_s: PerS,
    seed: Seed,
    kills: Annotated[int, typer.Option(min=0, help="Number of kills.")] = 0,
    journal: Annotated[
        Path | None, typer.Option(help="Internal: publish with this journal; do not supervise.")
    ] = None,
    announced: Annotated[int, typer.Option(min=0, help="Internal: reported messages.")] = 0,
    stored: Annotated[int, typer.Option(min=0, help="Internal: stored messages.")] = 0,
) -> None:
    """Publish numbered messages, and kill the publishing program at some of them."""
    if journal is not None:
        contents = (payload, payload_bytes, seed)
        known = (announced, stored)
        asyncio.run(_publish(port, name, messages, per_s, contents, journal, known))
        return
    rng = random.Random(f"{seed}/kills")
    places = sorted(rng.sample(range(1, messages + 1), min(kills, messages)))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        from hil.faults.loop_disk import LoopDisk, missing  # the publishing program needs no faults

        disk = None
        if kills and missing() is None:
            disk = stack.enter_context(closing(LoopDisk(Path(folder) / "disk")))
        Killed(disk.mount if disk else Path(folder), disk, places, rng).run()


class Killed:
    """The publishing program and its restarts. folder: the journal's folder, on the separate disk
    if there is one. places: numbers of the messages at which the program is killed.
    """

    def __init__(
        self, folder: Path, disk: "LoopDisk | None", places: list[int], rng: random.Random
    ) -> None:
        self._journal = folder / "journal.db"
        self._disk = disk
        self._places = places
        self._rng = rng
        self._announced = 0
        self._stored = 0
        """Number of the newest message that the journal must have: its `publish` has returned."""
        self._sent: set[int] = set()
        self._accepted: set[int] = set()

    def run(self) -> None:
        while self._live():
            time.sleep(DOWN_S)
        if self._places:
            sys.exit(f"{len(self._places)} kills have not happened")

    def _live(self) -> bool:
        """Run the program once; return whether it was killed. Raises SystemExit if it failed."""
        options = [f"--journal={self._journal}", f"--announced={self._announced}"]
        options += [f"--stored={self._stored}"]
        argv = [sys.executable, "-m", "hil.devices.kept", *sys.argv[1:], *options]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout  # noqa: S101
            signal(SIGTERM, lambda *_: _end(child))
            killed, cut = False, self._rng.random() < 0.5
            content: Path | None = None
            for line in child.stdout:
                if line.endswith(b"\n"):
                    self._take(json.loads(line))
                if not killed and self._places and self._announced >= self._places[0]:
                    killed = True
                    time.sleep(self._rng.uniform(0, 0.02))
                    if cut and self._disk is not None:
                        child.send_signal(SIGSTOP)
                        content = self._disk.freeze()
                    child.kill()
                    self._places.pop(0)
        if content is not None and self._disk is not None:
            self._disk.restart(content)
        elif killed and cut:
            with suppress(FileNotFoundError), Path(f"{self._journal}-wal").open("r+b") as log:
                log.seek(0, 2)
                log.write(self._rng.randbytes(self._rng.randrange(5000)))
        if not killed and child.returncode:
            sys.exit(child.returncode)
        return killed

    def _take(self, report: dict[str, object]) -> None:
        """Print a report of a new fact. A `sent` is printed as `again`, and only if repeated."""
        event, sequence = report["event"], int(str(report["sequence"]))
        if event == "publication":
            self._announced = sequence
        elif event == "stored":
            self._stored = sequence
            return
        elif event == "contradiction":
            self._stored = 0  # reported once
        elif event == "sent":
            if sequence in self._sent and sequence not in self._accepted:
                print(json.dumps({**report, "event": "again"}), flush=True)
            self._sent.add(sequence)
            return
        elif sequence in self._accepted:
            return
        else:
            self._accepted.add(sequence)
        print(json.dumps(report), flush=True)


async def _publish(
    port: int,
    name: str,
    messages: int,
    per_s: float,
    contents: tuple[Form, int, str],
    journal: Path,
    known: tuple[int, int],
) -> None:
    """Run the publishing program, from the first message that the journal lacks. known: the numbers
    of the newest message that was reported, and of the newest message for which `publish` has
    returned. If the journal lacks the latter, report a contradiction.
    """
    announced, stored = known
    threading.Thread(target=_end_with_parent, daemon=True).start()
    form, size, seed = contents
    publisher = Publisher(
        f"mqtt://127.0.0.1:{port}",
        device=name,
        journal=journal,
        incarnation=INCARNATION,
        wait_s=WAIT_S,
        start_s=0.1,
        stop_s=WAIT_S,
    )
    publisher.on_sent = lambda message: _tell("sent", message)
    publisher.on_taken = lambda message: _tell("acknowledged", message)
    async with publisher:
        if publisher.last < stored:
            text = f"the journal ends with message {publisher.last}, but had message {stored}"
            tell("contradiction", sequence=stored, text=text)
        for sequence in range(publisher.last + 1, messages + 1):
            await asyncio.sleep(1 / per_s)
            rng = random.Random(f"{seed}/{sequence}")
            content = payload_of(form, name, sequence, size, rng)
            if sequence > announced:
                topic = topic_of(name)
                tell("publication", sequence=sequence, topic=topic, payload=content.hex())
            await publisher.publish(topic_of(name), content)
            tell("stored", sequence=sequence)


def _tell(event: str, publication: Publication) -> None:
    if publication.incarnation != INCARNATION:
        raise RuntimeError("the publisher took its own journal for a copy")
    tell(event, sequence=publication.sequence)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    sys.exit()


def _end_with_parent() -> None:
    read(0, 1)
    _exit(1)


if __name__ == "__main__":
    app()
