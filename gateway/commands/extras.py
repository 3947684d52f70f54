"""Packages that this machine does not need for its own work. In: the name of an extra of
`pyproject.toml`. Out: what brings it to this installation, as a sentence.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DEBIAN = Path("/usr/lib/onceway")
"""Where the Debian package has its Python packages."""


def how_to_get(extra: str) -> str:
    """For a hint. It depends on where onceway came from: a clone, a wheel or the Debian package."""
    if Path(sys.prefix) == DEBIAN:
        return "The Debian package has no such part: use a clone of the source with `make setup`"
    try:
        origin = json.loads(distribution("onceway").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        clone = unquote(urlsplit(origin["url"]).path)
        return f"Run: {sys.executable} -m pip install --editable '{clone}[{extra}]'"
    wanted = f"onceway[{extra}]" + (f" @ {origin['url']}" if "url" in origin else "")
    return f"Run: {sys.executable} -m pip install '{wanted}'"
