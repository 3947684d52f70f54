"""Shares the registry of a gateway in a site: python -m provisioning.share_pipe REGISTRY MEMBER

In: the name of this gateway, and entries of other members on standard input, one per line. Out: the
registry with these entries, and on standard output all entries and then the conflicts. The program
is not a command of `onceway`, because entries hold keys.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import CONFLICT, Entry


def main() -> None:
    # sqlite_utils imports these packages if they are installed, but does not use them here: that
    # takes a second
    for package in ("numpy", "pandas"):
        sys.modules.setdefault(package, cast(ModuleType, None))
    from provisioning.registry import Registry

    incoming = [Entry.model_validate_json(line) for line in sys.stdin]
    try:
        registry = Registry(Path(sys.argv[1]), make=bool(incoming))
        entries, left_out, conflicts = registry.share(incoming, sys.argv[2])
    except OncewayError as error:
        sys.exit(str(error))
    for entry in entries:
        print(entry.text)
    for found in conflicts:
        print(CONFLICT + found.model_dump_json())
    for name in left_out:
        print(f"{name}: its entry in the registry is invalid, so it is not shared", file=sys.stderr)


if __name__ == "__main__":
    main()
