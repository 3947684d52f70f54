"""Optional Python packages (extras of `pyproject.toml`). In: the name of an extra. Out: a sentence
that says how to install the extra on this machine.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DEBIAN = Path("/usr/lib/onceway")
"""The folder in which the Debian package keeps its Python packages."""


def how_to_get(extra: str) -> str:
    """Return a sentence with the command that installs an extra here. The command depends on the
    kind of installation: clone, wheel or Debian package.
    """
    if Path(sys.prefix) == DEBIAN:
        return "The Debian package lacks this part: use a clone of the source with `make setup`"
    try:
        origin = json.loads(distribution("onceway").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        clone = unquote(urlsplit(origin["url"]).path)
        return f"Run: {sys.executable} -m pip install --editable '{clone}[{extra}]'"
    wanted = f"onceway[{extra}]" + (f" @ {origin['url']}" if "url" in origin else "")
    return f"Run: {sys.executable} -m pip install '{wanted}'"
