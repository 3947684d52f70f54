"""For a gateway that is a member of a site: python -m provisioning.share_pipe REGISTRY

In: on standard input, what other members say, one entry a line. Out: the registry with that, and on
standard output all entries. It is no command of `onceway`, for there are keys among them.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import Entry


def main() -> None:
    # sqlite_utils would import these where they are installed, and use nothing of them: that costs
    # a second
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
        print(f"{name}: what is said of it cannot be; it is not shared", file=sys.stderr)


if __name__ == "__main__":
    main()
