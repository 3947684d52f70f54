"""Exit codes of all commands and errors: each cause has one code."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import gateway
import provisioning
from gateway.backup.sealed import BackupError
from gateway.commands import exit_codes
from gateway.commands.exit_codes import MEANINGS
from gateway.commands.options import NoGateway
from gateway.errors import NotAllowed, OncewayError, Unknown, UsageError
from gateway.store.schema import StoreError
from gateway.system.lock import Locked
from gateway.uplink.cli import NoUplink
from gateway.uplink.owner import OwnedByAnother

ROOT = Path(__file__).parents[2]
CODES = {name: value for name, value in vars(exit_codes).items() if isinstance(value, int)}
FILES = sorted(
    path
    for folder in ("gateway", "provisioning")
    for path in (ROOT / folder).rglob("*.py")
    if "ingest" not in path.parts
)


def _errors() -> Iterator[type[OncewayError]]:
    """Yield each error class of the gateway and the provisioning."""
    for package in (gateway, provisioning):
        for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not item.name.startswith(("gateway.ingest", "gateway.__main__")):
                importlib.import_module(item.name)
    waiting = [OncewayError]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.partition(".")[0] in ("gateway", "provisioning"):
            yield one


def test_each_code_has_one_cause_and_each_cause_one_code() -> None:
    assert MEANINGS.keys() == {0, *CODES.values()}
    assert len({*CODES.values()}) == len(CODES)
    assert len({*MEANINGS.values()}) == len(MEANINGS)
    assert not [text for text in MEANINGS.values() if "; or" in text], "a second cause"


def test_each_error_has_the_code_of_its_cause() -> None:
    families: dict[int, type[OncewayError] | tuple[type[OncewayError], ...]] = {
        exit_codes.LOCKED: Locked,
        exit_codes.STORE: (StoreError, BackupError),
        exit_codes.NAME_TAKEN: OwnedByAnother,
        exit_codes.NO_UPLINK: NoUplink,
        exit_codes.NO_GATEWAY: NoGateway,
    }
    for error in _errors():
        assert error.exit_code in MEANINGS, error
        if family := families.get(error.exit_code):
            assert issubclass(error, family), error
        assert error.exit_code not in (exit_codes.PROBLEM, exit_codes.OUTAGE), error
    assert UsageError.exit_code == exit_codes.USAGE
    assert NotAllowed.exit_code == exit_codes.NOT_ALLOWED
    assert Unknown.exit_code == exit_codes.UNKNOWN


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_end_with_codes_of_the_table(path: Path) -> None:
    """Commands that exit with a literal number use 0 or 1. All other codes have a name in the
    table.
    """
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Call(func=ast.Attribute(attr="Exit" | "exit"), args=[ast.Constant(int(code))]):
                assert code in (0, exit_codes.FAILED), f"line {node.lineno}"
            case ast.Call(func=ast.Attribute(attr="Exit"), args=[ast.Name(name)]):
                assert name in CODES or name == "code", f"line {node.lineno}"
