"""Write `gateway.txt`: the exact packages of a gateway with the SHA-256 of each wheel that a target
installs. In: `pyproject.toml`, `constraints.txt`, the package index. Run by `make lock`.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from targets import TARGETS, Target

HERE = Path(__file__).parent
EXTRAS = ("gateway", "s3", "sftp")
_HEAD = """\
# What the Debian package holds: exact versions, and the SHA-256 of each wheel for Debian 12 and 13
# on amd64 and arm64. Made by `make lock` from pyproject.toml and constraints.txt.
"""


def main() -> None:
    hashes: dict[str, set[str]] = {}
    for target in TARGETS:
        for name, sha256 in _wheels(target):
            if name.startswith("pip=="):  # sqlite-utils needs it for an unused command
                continue
            hashes.setdefault(name, set()).add(sha256)
    lines = [
        " \\\n    ".join([name, *(f"--hash=sha256:{value}" for value in sorted(found))])
        for name, found in sorted(hashes.items())
    ]
    (HERE / "gateway.txt").write_text(_HEAD + "\n".join(lines) + "\n")


def _wheels(target: Target) -> list[tuple[str, str]]:
    """Return the wheels that pip would install on a target: (name==version, hash)."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
        *("--report", "-", "--constraint", str(HERE / "constraints.txt"), *target.pip),
        *("--target", "/nowhere", *wanted),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [
        (
            f"{item['metadata']['name']}=={item['metadata']['version']}",
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in json.loads(done.stdout)["install"]
    ]


if __name__ == "__main__":
    main()
