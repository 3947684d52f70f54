"""A batch whose bytes are lost on the gateway's disk: forgotten only if all of it has landed."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.uplink.lander import NumberLost, land
from gateway.uplink.manifest import Manifest, Origin, sha256

DATA, SIGNED = b"rows", b"signed"
OF = Manifest(Origin("site", "0123abcd"), 7, 1, len(DATA), sha256(DATA))


@pytest.mark.parametrize(
    ("there", "landed"),
    [
        ({OF.data_name: DATA, OF.name: SIGNED}, True),
        ({OF.data_name: b"others", OF.name: SIGNED}, False),
        ({OF.name: SIGNED}, False),
        ({OF.data_name: DATA, OF.name: b"another's"}, False),
        ({OF.data_name: DATA}, False),
        ({}, False),
    ],
)
def test_lost_batch_leaves_the_spool_only_if_it_has_landed(
    there: dict[str, bytes], landed: bool
) -> None:
    done: list[str] = []
    cut: Any = SimpleNamespace(number=7, rows=1, size=len(DATA), sha256=sha256(DATA))
    spool: Any = SimpleNamespace(origin=lambda: OF.origin, landed=lambda _: done.append("landed"))
    cutter: Any = SimpleNamespace(load=lambda _: None, forget=lambda _: done.append("forgotten"))
    signer: Any = SimpleNamespace(publish=lambda _: SIGNED)
    landing: Any = SimpleNamespace(read=there.get)
    try:
        land(cut, spool, cutter, landing, signer)
    except NumberLost as error:
        done.append(error.what)
    lost = ["batch 7 is damaged on this disk and has not landed"]
    assert done == (["landed", "forgotten"] if landed else lost)
