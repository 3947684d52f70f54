"""The report of `make audit`: packages with known faults, and packages without an answer."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".setup"))

from audit import BLIND, FAULTS, NOT_LOOKED_UP, pinned, verdict  # noqa: E402

LOCK = (ROOT / ".setup/gateway.txt").read_text()
WANTED = {"aiohttp": "3.9.0", "uvloop": "0.23.0"}
GOOD = {"name": "uvloop", "version": "0.23.0", "vulns": []}
BAD = {
    "name": "aiohttp",
    "version": "3.9.0",
    "vulns": [{"id": "PYSEC-2024-24", "fix_versions": ["3.9.2"], "aliases": ["CVE-2024-23334"]}],
}
SKIPPED = {"name": "aiohttp", "skip_reason": "Dependency not found on PyPI"}


def test_every_package_of_the_debian_package_is_looked_up() -> None:
    found = pinned(LOCK)
    assert len(found) == LOCK.count("==")
    assert found["aiohttp"].count(".") == 2


@pytest.mark.parametrize(
    ("dependencies", "code", "text"),
    [
        ([GOOD, BAD], FAULTS, "aiohttp 3.9.0: PYSEC-2024-24 CVE-2024-23334, fixed in 3.9.2"),
        ([GOOD, BAD | {"name": "AIOHTTP"}], FAULTS, "2 of 2 packages looked up, 1 known faults"),
        ([GOOD, BAD | {"vulns": []}], 0, "2 of 2 packages looked up, 0 known faults"),
        ([GOOD, SKIPPED], NOT_LOOKED_UP, "not looked up, nothing is known: aiohttp"),
        ([SKIPPED], NOT_LOOKED_UP, "not looked up, nothing is known: aiohttp, uvloop"),
        ([], NOT_LOOKED_UP, "0 of 2 packages looked up"),
        ([GOOD, BAD | {"version": "3.9.9"}], NOT_LOOKED_UP, "not looked up"),
        ([BAD], FAULTS, "not looked up, nothing is known: uvloop"),
    ],
)
def test_silence_about_a_package_is_no_all_clear(
    dependencies: list[dict[str, Any]], code: int, text: str
) -> None:
    lines, found = verdict(WANTED, {"dependencies": dependencies})
    assert found == code
    assert any(text in line for line in lines)


def test_an_answer_without_packages_is_no_all_clear() -> None:
    assert verdict(WANTED, {})[1] == NOT_LOOKED_UP


def test_audit_names_its_blind_spots() -> None:
    lines, _ = verdict(WANTED, {"dependencies": [GOOD]})
    assert all(any(text in line for line in lines) for text in BLIND)


def test_a_promise_says_how_soon_a_fix_reaches_users() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "`make audit`" in text
    assert "7 days" in text
