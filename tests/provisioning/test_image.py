"""HEX files: the identity is inserted, everything else stays, and an identity that does not fit is
refused.
"""

from io import StringIO
from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.errors import OncewayError
from hil.boards.simulator import BUILD
from provisioning.boards import board, catalogue
from provisioning.identity import SIZE, Identity
from provisioning.image import Image, without_identity, write_identity
from provisioning.radio_plan import RadioPlan, page

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


@pytest.mark.parametrize("radio", [None, RadioPlan(network=3, device=7)], ids=["line", "radio"])
def test_an_identity_alone_leaves_all_else_of_the_flash(
    tmp_path: Path, radio: RadioPlan | None
) -> None:
    path, identity = tmp_path / "page.hex", Identity.create("roof-1")
    write_identity(path, UNO, identity, radio)
    written = IntelHex(str(path))
    assert written.minaddr() == UNO.identity
    assert written.tobinstr() == page(identity, radio)
    assert path.stat().st_mode & 0o777 == 0o600, "the file holds the key"


def test_a_backup_of_a_board_has_neither_key_nor_boot_loader(tmp_path: Path) -> None:
    firmware, flash = _firmware(tmp_path / "a.hex", 1000), tmp_path / "flash.hex"
    Image(firmware, UNO).write(flash, Identity.create("roof-1"))
    whole = IntelHex(str(flash))
    whole[UNO.application_end] = 1
    whole.write_hex_file(str(flash))
    kept = IntelHex(StringIO(without_identity(flash, UNO)))
    assert (kept.minaddr(), kept.maxaddr()) == (0, 999)
    assert kept.tobinstr() == IntelHex(str(firmware)).tobinstr()


def test_a_firmware_with_its_signature_at_the_start_is_checked_like_others(tmp_path: Path) -> None:
    path = tmp_path / "first.hex"
    for address, fits in ((UNO.identity, True), (UNO.identity + 128, False)):
        content = b"OWFW\x01" + address.to_bytes(3)
        IntelHex(dict(enumerate(content))).write_hex_file(str(path))
        if fits:
            assert Image(path, UNO).signed
            continue
        with pytest.raises(OncewayError) as error:
            Image(path, UNO)
        assert error.value.where == str(path)
        assert error.value.what.startswith("this firmware looks for its name at 0x7E00, but")


def test_a_firmware_that_reaches_into_the_identity_page_is_refused(tmp_path: Path) -> None:
    assert Image(_firmware(tmp_path / "a.hex", UNO.identity), UNO).size == UNO.identity
    path = _firmware(tmp_path / "b.hex", UNO.identity + 1)
    with pytest.raises(OncewayError, match="0x7D80") as error:
        Image(path, UNO)
    assert error.value.where == str(path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff\xfe\x00", b":00000001FE\n", b":10000000"]
)
def test_file_that_is_not_intel_hex_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.hex"
    path.write_bytes(content)
    with pytest.raises(OncewayError, match="HEX file") as error:
        Image(path, UNO)
    assert error.value.where == str(path)


def test_a_missing_file_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match=r"make firmware.*ATmega328P at 16 MHz"):
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
