"""Gateways as processes whose configurations differ where they must agree."""

from pathlib import Path

from gateway.doctor.finding import State
from tests.site.gateways import Gateways, end


async def test_different_lists_of_members_are_named_everywhere(tmp_path: Path) -> None:
    """The status, health, log and doctor of both members name the lists, and all clients get
    suspect sessions.
    """
    found = Gateways(tmp_path, "attic", "barn", web=True)
    file = found.config("attic")
    file.write_text(file.read_text().replace("[site.members]\n", '[site.members]\nden = "d:1"\n'))
    words = "[site.members] differs: only attic has den. Make it the same at all members"
    try:
        for name in found.names:
            await found.start(name)

        for name in found.names:
            await found.shown(
                name, lambda rows: any(words in (row["problem"] or "") for row in rows)
            )
            assert not any(row["connected"] for row in (await found.rows(name))[1:])
            assert words in await found.get(name, "/healthz")
            assert sum(words in line for line in found.running[name].log) == 1
            wrong = [item for item in found.examined(name) if words in item.what]
            assert [item.state for item in wrong] == [State.WRONG]
            assert "Write the same" in (wrong[0].todo or "")
            await found.connect(name)
            assert (await found.figures(name))["marked"] == 1
    finally:
        for name in found.names:
            await end(found, name)
