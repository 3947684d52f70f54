"""Gateways as processes whose configurations or clocks differ where they must agree or should
agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.doctor.finding import State
from tests.site.gateways import Gateways, end

NEWER = """
from gateway.site.links import link, net
link.VERSION = link.OLDEST = net.VERSION = net.OLDEST = 2
"""
LATER = """
from datetime import datetime, timedelta
from gateway.site.links import link, net
class Later(datetime):
    @classmethod
    def now(cls, zone=None):
        return datetime.now(zone) + timedelta(seconds=500)
link.datetime = net.datetime = Later
"""
RUN = "import runpy\nrunpy.run_module('gateway', run_name='__main__')\n"


@dataclass(frozen=True)
class Difference:
    """A difference between attic and another member. words: the problem that attic's status names,
    and that of the other member. remedy: words of doctor's remedy. silent: whether both members get
    no link.
    """

    words: tuple[str, str]
    remedy: str
    silent: bool = True
    edit: Callable[[str], str] = str
    before: str = ""
    names: tuple[str, ...] = ("attic", "barn")
    state: State = State.WRONG


def without_cellar(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("cellar"))


SAME = "Make it the same at all members"
PROTOCOL = "protocol differs: {} speaks version {}, {} {}. Update Onceway at barn"
DIFFERENCES = {
    "members": Difference(
        ("[site.members] differs: only attic has den. " + SAME,) * 2,
        "Make [site] the same",
        edit=lambda text: text.replace("[site.members]\n", '[site.members]\nden = "d:1"\n'),
    ),
    "unlisted": Difference(
        (
            "[site.members] lacks gateways that try to join: cellar. Make [site.members] the same",
            "'cellar' is not in [site.members] of attic",
        ),
        "Make [site] the same",
        edit=without_cellar,
        names=("attic", "cellar"),
    ),
    "protocol": Difference(
        (PROTOCOL.format("barn", 1, "attic", 2),) * 2, "Install the newer", before=NEWER
    ),
    "copies": Difference(
        (
            "[site] copies differs: attic has 2, barn 1. " + SAME,
            "[site] copies differs: barn has 1, attic 2. " + SAME,
        ),
        "Make [site] the same",
        silent=False,
        edit=lambda text: text.replace("[site]\n", "[site]\ncopies = 2\n"),
    ),
    "clock": Difference(
        ("s behind this gateway's: times of readings", "s ahead of this gateway's: times of"),
        "timedatectl",
        silent=False,
        before=LATER,
        state=State.WARNING,
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("what", DIFFERENCES)
async def test_difference_is_named_everywhere_at_both_ends(tmp_path: Path, what: str) -> None:
    """Each member that runs names the difference in its status, its health, its log and its doctor.
    If the difference prevents a link between the members, clients get suspect sessions.
    """
    differs = DIFFERENCES[what]
    found = Gateways(tmp_path, "attic", "barn", "cellar", web=True)
    file = found.config("attic")
    if "cellar" not in differs.names:
        for name in differs.names:
            found.config(name).write_text(without_cellar(found.config(name).read_text()))
    file.write_text(differs.edit(file.read_text()))
    program = tmp_path / "program.py"
    program.write_text(differs.before + RUN)
    try:
        for name in differs.names:
            found.program = (str(program),) if name == "attic" else ("-m", "gateway")
            await found.start(name)
        for name, words in zip(differs.names, differs.words, strict=True):
            await found.told(name, words)
            assert words in await found.get(name, "/healthz")
            named = [line for line in found.running[name].log if words in line]
            assert len(named) == 1 or what == "unlisted"
            wrong = [item for item in found.examined(name) if words in item.what]
            assert {item.state for item in wrong} == {differs.state}
            assert all(differs.remedy in (item.todo or "") for item in wrong)
            rows = (await found.rows(name))[1:]
            assert any(row["connected"] for row in rows) != differs.silent
            if differs.silent:
                await found.connect(name, f"c-{name}")
                assert (await found.figures(name))["marked"] == 1
    finally:
        for name in found.running:
            await end(found, name)
