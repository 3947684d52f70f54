"""Line numbers of the keys in a configuration file.

In: the text of a TOML file. Out: the line number of each table and key. A statement is parsed as
soon as it is complete, so quotes, dotted keys and multi-line values need no extra rules.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

Place = tuple[int | str, ...]
"""Path of a value: names of keys, and indexes (from 0) of tables in [[ ]]."""

_AT_LINE = re.compile(r"at line ([0-9]+)")


class Lines:
    """Line numbers of the tables and keys of a file. text: the content of the file. After the first
    syntax error, no further key is found.
    """

    def __init__(self, text: str) -> None:
        self._at: dict[Place, int] = {}
        self._arrays: dict[Place, int] = {}
        self._table: Place = ()
        statement, begin = "", 1
        for number, line in enumerate(text.splitlines(), 1):
            if not statement:
                begin = number
            statement += line + "\n"
            try:
                found = tomllib.loads(statement)
            except tomllib.TOMLDecodeError:
                continue
            self._take(found, begin, is_table=statement.lstrip().startswith("["))
            statement = ""

    def of(self, path: Place) -> int | None:
        """Return the line number of a value, or of the nearest table or key that contains it, or
        None.
        """
        for end in range(len(path), 0, -1):
            if (number := self._at.get(path[:end])) is not None:
                return number
        return None

    def _take(self, found: dict[str, Any], number: int, *, is_table: bool) -> None:
        path: Place = () if is_table else self._table
        value: Any = found
        while isinstance(value, dict) and len(value) == 1:
            ((key, value),) = value.items()
            path = (*path, key)
            if is_table and value == [{}]:  # the header [[…]]
                index = self._arrays[path] = self._arrays.get(path, -1) + 1
                self._at.setdefault(path, number)
                path, value = (*path, index), {}
            elif is_table and path in self._arrays:
                path = (*path, self._arrays[path])
            self._at.setdefault(path, number)
        if is_table:
            self._table = path


def of_syntax(error: tomllib.TOMLDecodeError) -> int | None:
    """Return the line number in an error of the TOML parser, or None."""
    found = _AT_LINE.search(str(error))
    return int(found[1]) if found else None
