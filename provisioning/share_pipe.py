"""Shares the registry of a gateway in a site: python -m provisioning.share_pipe REGISTRY

In: entries of other members on standard input, one per line. Out: the registry with these entries,
and all entries on standard output. This is not a command of `onceway`, since entries hold keys.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import Entry


def main() -> None:
    # sqlite_utils imports these packages if they are installed, but does not use them here: that
    # takes a second
    for package in ("numpy", "pandas"):
        sys.modules.setdefault(package, cast(ModuleType, None))
    from provisioning.registry import Registry

    incoming = [Entry.model_validate_json(line) for line in sys.stdin]
    try:
        entries, left_out = Registry(Path(sys.argv[1]), make=bool(incoming)).share(incoming)
    except OncewayError as error:
        sys.exit(str(error))
    for entry in entries:
        print(entry.text)
    for name in left_out:
        print(f"{name}: its entry is not possible, so it is not shared", file=sys.stderr)


if __name__ == "__main__":
    main()
