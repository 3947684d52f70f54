"""HEX files: the identity is inserted, everything else stays, and an identity that does not fit is
refused.
"""

from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.errors import OncewayError
from hil.boards.simulator import BUILD
from provisioning.boards import board, catalogue
from provisioning.identity import SIZE, Identity
from provisioning.image import Image

UNO = board("uno")


def _firmware(path: Path, size: int) -> Path:
    IntelHex({address: address & 0xFF for address in range(size)}).write_hex_file(str(path))
    return path


def test_the_identity_is_patched_in_and_the_firmware_stays(tmp_path: Path) -> None:
    firmware, patched = _firmware(tmp_path / "a.hex", 1000), tmp_path / "b.hex"
    identity = Identity.create("roof-1")
    Image(firmware, UNO).write(patched, identity)
    assert (
        Identity.from_bytes(IntelHex(str(patched)).tobinstr(start=UNO.identity, size=SIZE))
        == identity
    )
    assert IntelHex(str(patched)).tobinstr(start=0, size=1000) == IntelHex(str(firmware)).tobinstr(
        start=0, size=1000
    )
    assert patched.stat().st_mode & 0o077 == 0, "the file holds the key"


def test_a_firmware_that_reaches_into_the_identity_page_is_refused(tmp_path: Path) -> None:
    assert Image(_firmware(tmp_path / "a.hex", UNO.identity), UNO).size == UNO.identity
    with pytest.raises(OncewayError, match="0x7D80"):
        Image(_firmware(tmp_path / "b.hex", UNO.identity + 1), UNO)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff\xfe\x00", b":00000001FE\n", b":10000000"]
)
def test_file_that_is_not_intel_hex_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.hex"
    path.write_bytes(content)
    with pytest.raises(OncewayError, match=r"broken\.hex"):
        Image(path, UNO)


def test_a_missing_file_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="make firmware"):
        Image(tmp_path / "none.hex", UNO)


def test_the_identity_page_of_each_board_is_the_last_below_its_boot_loader() -> None:
    for entry in catalogue().values():
        page = 256 if entry.flash > 65536 else 128
        assert entry.identity == entry.application_end - page


@pytest.mark.parametrize("name", ["nano-old", "mega2560", "pro-mini"])
def test_missing_firmware_for_a_board_is_an_error_that_describes_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        OncewayError,
        match=(
            rf"build/firmware/{name}/sensor.hex: there is no firmware for .* with the identity page"
            r" at 0x"
        ),
    ):
        Image(board(name).hex_file, board(name))


@pytest.mark.sim
def test_a_firmware_for_another_identity_page_is_refused_before_it_is_written(
    tmp_path: Path,
) -> None:
    """With that firmware, the board would not find its name."""
    for kind in catalogue().values():
        firmware = BUILD.parents[1] / kind.hex_file
        assert Image(firmware, kind).signed
        for other in catalogue().values():
            if other.identity > kind.identity:
                with pytest.raises(
                    OncewayError, match=f"looks for its name at 0x{kind.identity:X}"
                ):
                    Image(firmware, other)
    assert not Image(_firmware(tmp_path / "a.hex", 1000), UNO).signed
