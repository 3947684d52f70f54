"""The publisher is small: importing it does not import the gateway."""

import subprocess
import sys
import tomllib
from pathlib import Path

PUBLISHER = Path(__file__).parents[2] / "gateway" / "publisher"
LOOK = """
import sys, json
import onceway_publisher.cli
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_publisher_imports_nothing_of_the_gateway() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, cwd=PUBLISHER
    ).stdout
    ours = ("gateway", "hil", "provisioning")
    heavy = (
        "aiohttp",
        "cbor2",
        "sqlite_utils",
        "cryptography",
        "pyarrow",
        "uvloop",
        "paho",
        "aiomqtt",
    )
    assert not [name for name in (*ours, *heavy) if f'"{name}"' in found]
    assert '"onceway_publisher"' in found, "the test sees what is imported"


def test_publisher_depends_on_its_imports_only() -> None:
    project = tomllib.loads((PUBLISHER / "pyproject.toml").read_text())["project"]
    whole = tomllib.loads((PUBLISHER.parents[1] / "pyproject.toml").read_text())["project"]
    assert {it.partition(">")[0] for it in project["dependencies"]} == {"sqlite-utils", "typer"}
    extra = {*whole["optional-dependencies"]["publisher"], *whole["dependencies"]}
    assert {*project["dependencies"]} <= extra
