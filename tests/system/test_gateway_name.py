"""One rule for names of gateways: the configuration and `onceway ingest trust` refuse the same
names, with the same text.
"""

from pathlib import Path

import pytest

from gateway.config import advice, load
from gateway.errors import OncewayError
from gateway.system import gateway_name

GOOD = [
    "site-1",
    "roof west",
    "a.b c.é",
    "100% lab",
    "%5Flab",
    "lab_",
    "lab.",
    "Lab",
    "lab",
    "#1",
    "[a]",
    "*",
    "Grüße 東京 🏔",
    "newest",
    "lost+found 2",
    "con",
    "a" * 64,
    "é" * 64,
]
BAD = {
    "": "at least",
    "_lab": "must not begin with '_' or '.'",
    ".lab": "must not begin with '_' or '.'",
    "_newest": "must not begin with '_' or '.'",
    ".incoming": "must not begin with '_' or '.'",
    ".": "usable as a folder name",
    "..": "usable as a folder name",
    "...": "must not begin with '_' or '.'",
    "a/b": "usable as a folder name",
    "a\\b": "usable as a folder name",
    "a?b": "usable as a folder name",
    "a\tb": "usable as a folder name",
    "a\nb": "usable as a folder name",
    "a\u200bb": "usable as a folder name",
    "a\u00a0b": "usable as a folder name",
    " lab": "must not begin or end with a space",
    "lab ": "must not begin or end with a space",
    "lost+found": "folder that file systems make",
    "Lost+Found": "folder that file systems make",
    "$RECYCLE.BIN": "folder that file systems make",
    "System Volume Information": "folder that file systems make",
    "a" * 65: "at most 64 characters",
    "🏔" * 51: "200 bytes",
}


def config(tmp_path: Path, name: str) -> Path:
    file = tmp_path / "onceway.toml"
    escaped = "".join(
        letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08x}"
        for letter in name
    )
    file.write_text(f'[gateway]\nname = "{escaped}"\n', "utf-8")
    return file


@pytest.mark.parametrize("name", GOOD)
def test_a_name_is_taken(name: str, tmp_path: Path) -> None:
    assert gateway_name.problem(name) is None
    assert load(config(tmp_path, name)).gateway.name == name


@pytest.mark.parametrize("name", BAD)
def test_a_name_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    assert BAD[name] in str(gateway_name.problem(name))
    with pytest.raises(OncewayError) as raised:
        load(config(tmp_path, name))
    text = str(raised.value)
    assert "gateway.name" in text
    assert BAD[name] in text


def test_a_name_that_is_no_text_is_refused() -> None:
    """Python represents a folder name that is not UTF-8 by a text with surrogates."""
    assert "UTF-8" in str(gateway_name.problem("caf\udce9"))
    assert gateway_name.shown("caf\udce9") == "caf\\udce9"


@pytest.mark.parametrize("name", ["_lab", "lost+found", "🏔" * 51])
def test_members_of_a_site_have_names_of_gateways(name: str, tmp_path: Path) -> None:
    file = tmp_path / "onceway.toml"
    file.write_text(f'[gateway]\nname = "a"\n[site.members]\n"{name}" = "b:8884"\na = "a:8884"\n')
    with pytest.raises(OncewayError, match=r"must"):
        load(file)


def test_the_longest_name_fits_where_it_is_used() -> None:
    from gateway.uplink.manifest import Origin, marker_name

    longest = "a" + "é" * 63
    assert gateway_name.problem(longest) is None
    marker = marker_name(Origin("é" * (gateway_name.LONGEST_BYTES // 2), "0a1b2c3d"), 1)
    assert len(marker.rpartition("/")[2].encode()) <= 255


POOR = {
    "lab.": "a dot",
    "*": "characters",
    "a:b": "characters",
    'a"<>|b': "characters",
    "con": "device",
    "CON": "device",
    "Aux.lab": "device",
    "lpt1": "device",
    "com³": "device",
    "nul .x": "device",
    "cafe\u0301": "NFC",
}


@pytest.mark.parametrize("name", POOR)
def test_a_poor_name_is_taken_with_a_warning(name: str, tmp_path: Path) -> None:
    """A gateway that already has such a name must be able to continue."""
    file = config(tmp_path, name.replace('"', ""))
    plain = load(file)
    assert plain.gateway.name == name.replace('"', "")
    assert advice(plain) == []  # no warning without an uplink
    file.write_text(file.read_text() + '[uplink]\nlanding = "/srv/landing"\n')
    (line,) = advice(load(file))
    assert line.startswith("gateway.name: ")
    assert POOR[name] in line


@pytest.mark.parametrize("name", ["site-1", "Grüße 東京 🏔", "100% lab", "#1", "lab.1", "console"])
def test_a_common_name_is_no_poor_one(name: str) -> None:
    assert gateway_name.caution(name) is None
