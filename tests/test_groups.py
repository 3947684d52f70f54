"""The groups of `make test` (`tests/__main__.py`): each test file is in exactly one group."""

from collections import Counter
from pathlib import Path

from tests.__main__ import HERE, groups


def files(arguments: list[str]) -> list[Path]:
    """Return the test files that pytest finds with these arguments."""
    root = HERE.parent
    ignored = [root / one.removeprefix("--ignore=") for one in arguments if one[0] == "-"]
    paths = [root / one for one in arguments if one[0] != "-"]
    found = [
        file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))
    ]
    return [one for one in found if not any(one.is_relative_to(it) for it in ignored)]


def test_each_file_of_tests_is_in_one_group() -> None:
    found = Counter(file for group in groups() for file in files(group))
    assert found == Counter(HERE.rglob("test_*.py"))


def test_each_group_has_tests() -> None:
    assert all(map(files, groups()))
