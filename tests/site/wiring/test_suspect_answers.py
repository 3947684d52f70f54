"""Answers that were given while a member was silent: the newest ones are recorded, and written to
disk soon.
"""

from pathlib import Path

import pytest

from gateway.site.wiring import suspect_answers as service
from gateway.site.wiring.suspect_answers import Doubts
from gateway.store.doubts import LONGEST, MOST, Doubt, read
from tests.links.board import until


async def test_the_newest_are_kept_and_written_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WRITE_S", 0.01)
    doubts = Doubts(tmp_path, lambda: 7)
    doubts.add("x" * (LONGEST + 1), ["barn"])
    for number in range(MOST + 2):
        doubts.add(f"c{number}", ["barn"])
    await until(lambda: bool(read(tmp_path)))
    found = read(tmp_path)
    assert (len(found), found[0], found[-1].client) == (
        MOST,
        Doubt("c2", 7, ["barn"]),
        f"c{MOST + 1}",
    )
    again = Doubts(tmp_path, lambda: None)
    again.add("last", [])
    again.close()
    assert read(tmp_path)[-2:] == [found[-1], Doubt("last", None, [])]
