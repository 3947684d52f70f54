"""More sabotages than `make test` has time for (`make soak`): each must be caught by a bench that
ships.

Where one is caught by a cut at a certain point of an exchange, the bench is one that cuts at all of
them.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.hil.test_sabotage import Sabotage, counts, sabotaged, start

pytestmark = [pytest.mark.sim, pytest.mark.timeout(600)]

ACK_JUST_BEFORE_COMMIT: Sabotage = (
    "gateway/service/engine.py",
    "        self._writer.submit(commit)\n",
    (
        "        self._on_disk(commit.number)\n        self._write()\n       "
        " self._writer.submit(commit)\n"
    ),
)
FORGED_COMPLETION: Sabotage = (
    "gateway/broker/publishing.py",
    (
        "        reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if position in missing else"
        " ReasonCode.SUCCESS\n"
    ),
    "        reason = ReasonCode.SUCCESS\n",
)
NO_DEDUPLICATION_IN_THE_BROKER: Sabotage = (
    "gateway/broker/publishing.py",
    "    if qos == 2 and not inbound.all_new(identifiers):\n",
    "    if qos == 2 and not inbound.all_new(identifiers) and False:\n",
)
DELETED_BEFORE_THE_UPLOAD: Sabotage = (
    "gateway/uplink/lander.py",
    "    data = cutter.load(cut)\n",
    "    data = cutter.load(cut)\n    spool.landed(cut)\n",
)
SEQUENCE_IN_RAM_ONLY: Sabotage = (
    "firmware/src/ow_journal.c",
    "if (entry.sequence >= journal->next) {",
    "if (entry.sequence >= journal->next && journal->next > entry.sequence) {",
)
JOURNAL_WITHOUT_CHECK: Sabotage = (
    "firmware/src/ow_journal.c",
    "if (ow_crc(OW_CRC_INITIAL, record, RELEASED_AT) != 0) {",
    "if (record[SEQUENCE_AT + 3] == 0xFF && record[CRC_AT] == 0xFF) {",
)


def run(tmp_path: Path, bench: str, *sabotages: Sabotage) -> subprocess.CompletedProcess[str]:
    tree = sabotaged(tmp_path, *sabotages)
    if any(name.startswith("firmware/") for name, _, _ in sabotages):
        subprocess.run(
            ["make", "-s", "-C", tree / "firmware", "../build/firmware/uno/sensor.hex"], check=True
        )
    return start(tree, tmp_path, "run", bench)


@pytest.mark.parametrize("bench", ["every-step", "every-write", "bad-uplink"])
def test_the_copy_itself_holds(tmp_path: Path, bench: str) -> None:
    done = run(tmp_path, bench)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_forged_completion_is_caught(tmp_path: Path) -> None:
    """Who loses a publication after its PUBREC is saved by the truth: 0x92 to its PUBREL makes the
    board publish again. A gateway that forges success there has lost it for good.
    """
    done = run(tmp_path, "every-step", ACK_JUST_BEFORE_COMMIT, FORGED_COMPLETION)
    assert counts(done)["lost"] > 0, done.stdout
    assert re.search(r"lost: uno-1 sequence \d+, wrong from spool on", done.stdout)


def test_a_broker_without_deduplication_is_caught(tmp_path: Path) -> None:
    done = run(tmp_path, "every-step", NO_DEDUPLICATION_IN_THE_BROKER)
    assert counts(done)["doubled"] > 0, done.stdout
    assert re.search(r"duplicate: uno-1 sequence \d+, wrong from spool on", done.stdout)


def test_a_spool_emptied_before_the_upload_is_caught(tmp_path: Path) -> None:
    done = run(tmp_path, "bad-uplink", DELETED_BEFORE_THE_UPLOAD)
    assert counts(done)["lost"] > 0, done.stdout
    assert re.search(r"lost: uno-\d sequence \d+, wrong from batch on", done.stdout)


def test_a_sequence_kept_in_ram_only_is_caught(tmp_path: Path) -> None:
    done = run(tmp_path, "every-write", SEQUENCE_IN_RAM_ONLY)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "contradicts itself: sequence" in done.stdout


def test_a_journal_without_check_is_caught(tmp_path: Path) -> None:
    done = run(tmp_path, "every-write", JOURNAL_WITHOUT_CHECK)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"fails: ", done.stdout), done.stdout
