"""No statement that runs while the gateway serves reads the whole of a table that can grow.

The test finds each call of `execute`, `executemany` and `executescript` in the product's source,
and asks SQLite for the plan of its statement. A scan of a table needs an entry in `BOUNDED`, which
says why the scan is bounded.
"""

import ast
import importlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.bridge.agreed import AgreedFile
from gateway.broker.store_rows import Commit
from gateway.store import apply, copies
from gateway.store.cells import teach
from gateway.store.schema import open_store

ROOT = Path(__file__).parents[2]

ONCE = {
    "gateway/backup/restore.py": "a restore",
    "gateway/boards/admission.py": "the registry, bounded by its boards, read after a change",
    "gateway/commands/completion.py": "the completion of a command line, on the registry",
    "gateway/store/backup.py": "a backup copies all pages, in steps",
    "gateway/store/board_queues.py": "the start after a restore",
    "gateway/store/cells.py": "checks of rows: by a person, or of a batch's rows",
    "gateway/store/check.py": "`onceway store check`, by a person",
    "gateway/store/downgrade.py": "an older version is installed",
    "gateway/store/meta.py": "the table meta does not grow",
    "gateway/store/recovery.py": "the start reads the state",
    "gateway/store/references.py": "the start and the check follow all references",
    "gateway/store/reading.py": "`onceway store salvage`, by a person",
    "gateway/store/missing_checks.py": "the start after a run of an older version",
    "gateway/store/salvage.py": "`onceway store salvage`, by a person",
    "gateway/store/schema.py": "the start makes the tables",
    "gateway/store/twins.py": "the start and the check compare rows with their copies",
    "gateway/store/views.py": "`onceway session` and `onceway retained`, without a gateway",
    "gateway/uplink/delta_reader.py": "the table at the centre, asked by a person",
    "gateway/uplink/rescue.py": "a rescue of a damaged store, by a person",
}
"""Files whose statements run rarely, or on a small table, so that they need no check. The value
says when they run, or why the table is small.
"""

BOUNDED = {
    ("Spool.volume", "SCAN spool"): "only where no running gateway tells the sums; then nobody"
    " waits for this process",
    ("Spool.volume", "SCAN batch"): "the newest 10,000, by LIMIT",
    ("Spool.find", "SCAN spool"): "one reading that a person looks for, on a thread of its own",
    ("Spool._find_anonymous", "SCAN spool"): "one reading that a person looks for",
    ("Spool.last_landed", "SCAN batch"): "ends at the newest landed batch: one at most has not",
    ("Spool.landed_batches", "SCAN batch"): "one reading that a person looks for, newest first",
    ("DamagedRows.last_cut", "SCAN batch"): "the newest, by LIMIT",
    ("Spool.renumber", "SCAN batch"): "once, for a new numbering",
    ("Copies.sizes", "SCAN copy"): "the start reads the sizes of replicas",
    ("Copies.gaps", "SCAN copy"): "the start looks for missing replicas",
    ("Copies.gaps", "SCAN rows"): "the start looks for missing replicas",
    ("Copies.orphans", "SCAN copy"): "the start looks for replicas of unknown lines",
    ("Spool.ends", "SCAN spool"): "the oldest, by LIMIT",
    ("_between", "SCAN page"): "the rows of one page, by LIMIT",
    ("Writer._look", "SCAN spool"): "the oldest, by LIMIT",
    ("AgreedFile._read", "SCAN agreed"): "the start of a bridge reads it, on a thread",
    ("AgreedFile._read", "SCAN doubted"): "the start of a bridge reads it, on a thread",
    ("AgreedFile._read", "SCAN far_mark"): "one row",
    ("Journal._write", "SCAN journal"): "one row",
    ("add_times", "SCAN spool"): "once a start, when the time becomes known",
    ("last_seen", "SCAN spool"): "the newest, by LIMIT",
    ("_new_rows", "SCAN spool"): "the newest 65, by LIMIT",
    ("_has_left", "SCAN batch"): "the newest, by LIMIT",
    ("_tell_away", "SCAN session"): "once a start, after a reboot",
}
"""Scans that are bounded: by function and step of the plan, with the reason."""

EXAMPLES: dict[str, dict[str, list[Any]]] = {
    "put": {"table": [name for name in apply._COLUMNS if name != "copy"], "chunk": [1, 64]},
    "_delete_all": {
        "which": [
            *(which for which, _ in apply._deleted_keys(Commit(0))),
            *(f"{which} {apply._LISTED}" for which in apply._OF_A_SESSION),
            f"queue WHERE (session, first) {apply._PAIRS}",
        ]
    },
    "_Import._put": {"table": ["subscription"], "places": ["?,?,?,?"]},
    "_read.rows": {"query": ["SELECT 1"]},  # each caller's statement is tested itself
    "DamagedRows.damaged": {"query": ["SELECT device FROM spool WHERE id = ?"]},
    "Numbers._check": {"table": ["batch", "meta"]},
    "Space._ask": {"pragma": ["page_count"]},
}
"""Values of local names in statements, by function, for names that the source alone does not
explain.
"""
_NO_PLAN = ("PRAGMA", "BEGIN", "COMMIT", "ROLLBACK", "CREATE", "VACUUM", "ATTACH", "REINDEX")
_OF_NO_TABLE = ("json_each", "meta", "CONSTANT", "line", "spool_last")
"""Names in plans that do not stand for large tables. `line` has one row for each member of a site.
`spool_last` is a view of one row.
"""
_PREPARES = ("execute", "executemany", "executescript")
_HELPERS = ("many", "rows")
"""Names of local functions that run the statement in their first argument."""


class Call:
    """A call that prepares a statement. function: the function around the call, as CLASS.FUNCTION.
    inside: the classes and functions around the call, the outermost first.
    """

    def __init__(self, path: Path, inside: list[Any], call: ast.Call) -> None:
        self.file = str(path.relative_to(ROOT))
        self.function = ".".join(node.name for node in inside)
        self.where = f"{self.file}:{call.lineno} {self.function}"
        self._inside = inside
        self._statement = call.args[0]

    def statements(self) -> set[str]:
        """Return the texts of the statement: one for each combination of the values of its local
        names.
        """
        module = importlib.import_module(self.file.removesuffix(".py").replace("/", "."))
        wanted = {node.id for node in ast.walk(self._statement) if isinstance(node, ast.Name)}
        local = {name: values for name, values in self._locals(module).items() if name in wanted}
        code = ast.unparse(self._statement)
        return {
            eval(code, vars(module) | dict(zip(local, values, strict=True)))
            for values in product(*local.values())
        }

    def _locals(self, module: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for node in ast.walk(self._inside[-1]):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values = [node.value]
            elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
                values = node.iter.elts
            else:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            with suppress(Exception):  # a value that is known only in a run
                found[target.id] = [eval(ast.unparse(one), vars(module)) for one in values]  # type: ignore[attr-defined]
        return found | EXAMPLES.get(self.function, {})


def calls_in(path: Path) -> Iterator[Call]:
    def visit(node: ast.AST, inside: list[Any]) -> Iterator[Call]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = [*inside, node]
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            helper = isinstance(node.func, ast.Name) and node.func.id in _HELPERS
            helper = helper and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
            if name in _PREPARES or helper:
                yield Call(path, inside, node)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(path.read_text()), [])


CALLS = [
    call
    for folder in (ROOT / "gateway").iterdir()
    if folder.is_dir() and folder.name != "ingest"
    for path in sorted(folder.rglob("*.py"))
    for call in calls_in(path)
]
ASKED = [call for call in CALLS if call.file not in ONCE]


_JOURNAL = """
CREATE TABLE journal (id INTEGER PRIMARY KEY, device, incarnation, sequence, place, token);
CREATE TABLE messages (
    incarnation, sequence, topic, payload, retain, PRIMARY KEY (incarnation, sequence));
"""
"""The tables of a publisher's journal (`gateway/publisher`)."""


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[sqlite3.Connection]]:
    folder = tmp_path_factory.mktemp("plans")
    with (
        closing(open_store(folder, "g")) as store,
        closing(copies.Copies(folder)) as shelf,
        closing(sqlite3.connect(":memory:")) as registry,
        closing(AgreedFile(folder, "b")._open()) as agreed,
        closing(sqlite3.connect(":memory:")) as journal,
    ):
        teach(store)
        journal.executescript(_JOURNAL)
        yield [store, shelf._db, registry, agreed, journal]


def plan(databases: list[sqlite3.Connection], statement: str) -> list[str]:
    """Return the steps of a statement's plan, from the first database that has its tables."""
    errors = []
    for database in databases:
        # 1 for all parameters, because SQLite's plan does not depend on their values
        numbers = {int(number) for number in re.findall(r"\?(\d+)", statement)}
        values: Any = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
        values = values or [1] * (max(numbers) if numbers else statement.count("?"))
        try:
            rows = database.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            return [row[3] for row in rows]
        except sqlite3.OperationalError as error:
            errors.append(str(error))
    raise AssertionError(f"no plan of {statement!r}: {errors}")


def scans(databases: list[sqlite3.Connection], call: Call) -> Iterator[tuple[str, str]]:
    for statement in call.statements():
        for step in [] if statement.lstrip().startswith(_NO_PLAN) else plan(databases, statement):
            read = re.match(r"SCAN (\w+)", step)
            if read is None or read[1] in _OF_NO_TABLE or read[1].isdecimal():
                continue
            if (read[1], "spool_last" in statement) != ("batch", True):  # its newest row, by LIMIT
                yield f"SCAN {read[1]}", statement


@pytest.mark.parametrize("call", ASKED, ids=[call.where for call in ASKED])
def test_statement_reads_no_table_as_a_whole(
    databases: list[sqlite3.Connection], call: Call
) -> None:
    for scan, statement in scans(databases, call):
        assert (call.function, scan) in BOUNDED, statement


def test_each_reason_belongs_to_a_statement(databases: list[sqlite3.Connection]) -> None:
    used = {(call.function, scan) for call in ASKED for scan, _ in scans(databases, call)}
    assert used == BOUNDED.keys()
    assert {call.file for call in CALLS} >= ONCE.keys()


def test_statements_are_found() -> None:
    """The search finds every file that prepares a statement."""
    files = {call.file for call in CALLS}
    for path in (ROOT / "gateway").rglob("*.py"):
        name = str(path.relative_to(ROOT))
        if re.search(r"\.execute(many|script)?\(", path.read_text()) and "/ingest/" not in name:
            assert name in files
    assert len(ASKED) > 100
