"""Tables on standard output: as wide as the terminal; in a pipe, wide enough for programs that read
them.
"""

import sys

from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 240


def print_table(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)
