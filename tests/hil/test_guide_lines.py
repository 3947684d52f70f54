"""The command lines of hil/README.md, run as written and in their order, in a folder with the
content of a clone. A run that takes hours is interrupted after its first bench, as by Ctrl-C.

In: the guide, the built firmware. The test takes ten minutes.
"""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from tests.hil.bench.test_guide import block
from tests.service.guide_lines import ROOT, lines

GUIDE = "hil/README.md"
HOURS = re.compile(r"--repeat|--core")
"""Options of command lines that would run for hours. The test interrupts these lines after the
verdict of their first run.
"""

LONGEST_S = 900.0
INTERRUPTED = 130
TOLD = {
    "hil list": "gateway-kills",
    "hil run resets --keep": "build/hil/resets-1",
    "hil check": "holds",
    "hil replay": "holds",
    "hil report": "written: build/hil/resets-1/report.html",
    "hil demo": "0 lost",
    "hil compare": "change",
    "hil run --": "holds",
    "hil glue": "holds",
    "hil trace show": "bursts",
    "own-programs": "holds",
    "cuts.toml": "holds",
}
"""Part of a command line → words that the first line with this part prints."""


async def run(folder: Path, text: str, until: str = "") -> tuple[int, str]:
    """Run a command line of the guide; return exit code and output. until: words in the output at
    which to interrupt it.
    """
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"exec {text}"),
        cwd=folder,
        env=os.environ | {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(LONGEST_S):
            while data := await process.stdout.read(65_536):
                said += data.decode(errors="replace")
                if until and re.search(until, said):
                    process.send_signal(signal.SIGINT)
                    until = ""
            return await process.wait(), said
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        return -1, said


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the parts of a clone that the lines name."""
    for name in (".venv", "hil", "firmware"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER/bursts.jsonl").symlink_to(ROOT / "hil/traces/bursts.jsonl")
    return tmp_path


@pytest.mark.soak
@pytest.mark.sim
async def test_lines_of_the_rig_run_as_written(clone: Path) -> None:
    ran = []
    for line in lines(GUIDE, (ROOT / GUIDE).read_text()):
        until = r"holds +\S+-\d+: " if HOURS.search(line.text) else ""
        code, said = await run(clone, line.text, until)
        assert "Traceback" not in said, f"{line}: {said[-2000:]}"
        assert code == (INTERRUPTED if until else 0), f"{line}: exit code {code}: {said[-2000:]}"
        told = [words for part, words in TOLD.items() if part in line.text]
        assert all(words in said for words in told), f"{line}: {said[-2000:]}"
        ran.append(line.text)
    assert all(any(part in text for text in ran) for part in TOLD)


@pytest.mark.soak
@pytest.mark.sim
async def test_bench_and_test_of_the_guide_run_as_written(clone: Path) -> None:
    (clone / "my-lines.toml").write_text(block("README.md", "title ="))
    (clone / "test_mine.py").write_text(block("README.md", "def test_my_lines"))
    code, said = await run(clone, "onceway hil run my-lines.toml")
    assert (code, "holds" in said) == (0, True), said[-2000:]
    code, said = await run(clone, "python -m pytest -q -p no:cacheprovider test_mine.py")
    assert code == 0, said[-2000:]
