"""Provisions a list of devices. In: a CSV file with the columns name, port and optionally board.
Out: each device provisioned, in order.

Devices that are ready are skipped, so the same command continues an interrupted run.
"""

import csv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from gateway.errors import OncewayError
from provisioning.boards import Board, board
from provisioning.identity import check_name

_COLUMNS = {"name", "port", "board"}
_AT_ONCE = 8

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list. line: its number in the file, for error messages."""

    line: int
    name: str
    port: str
    board: Board


def read(path: Path) -> list[Entry]:
    """Read and check the whole list before the first board is touched. Raises OncewayError with
    file and line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(_entries(path, csv.DictReader(file)))
    except OSError as error:
        raise OncewayError(f"cannot read the list ({error.strerror})", str(path)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise OncewayError(f"not a CSV file ({error})", str(path)) from error


def by_port(entries: list[Entry], one: Callable[[int, Entry], Done]) -> list[Done]:
    """Call `one` with each entry and its number, counted from 1. Return the results in the order of
    the list. Entries with different ports run at the same time, entries with the same port one by
    one.
    """
    numbered = sorted(enumerate(entries, 1), key=lambda item: item[1].port)
    groups = [list(group) for _, group in groupby(numbered, key=lambda item: item[1].port)]

    def in_turn(group: list[tuple[int, Entry]]) -> list[tuple[int, Done]]:
        return [(number, one(number, entry)) for number, entry in group]

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        done = [item for group in threads.map(in_turn, groups) for item in group]
    return [result for _, result in sorted(done, key=lambda item: item[0])]


def _entries(path: Path, rows: "csv.DictReader[str]") -> Iterator[Entry]:
    named = rows.fieldnames or ()
    if not {"name", "port"} <= set(named) <= _COLUMNS or len(set(named)) < len(named):
        raise OncewayError(
            "the first line must name the columns", f"{path}:1", "Use: name,port or name,port,board"
        )
    seen: dict[str, int] = {}
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise OncewayError(
                "this line and the first line differ in the number of columns", where
            )
        try:
            check_name(row["name"])
            entry = Entry(rows.line_num, row["name"], row["port"], board(row.get("board") or "uno"))
        except OncewayError as error:
            raise OncewayError(error.what, where, error.hint) from None
        if not entry.port.isprintable():
            raise OncewayError(f"{entry.port!r} is not a valid port", where)
        if entry.name in seen:
            raise OncewayError(
                f"the name {entry.name!r} is on line {seen[entry.name]} already", where
            )
        seen[entry.name] = entry.line
        yield entry
    if not seen:
        raise OncewayError("the list names no board", str(path))
