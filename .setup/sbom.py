"""The parts of the Debian package. In: a folder of installed Python packages. Out: a software bill
of materials (CycloneDX 1.5, JSON) and the licences of all parts in one list.
"""

import re
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("gateway.txt")
_OURS = """\
Onceway is under the Apache License 2.0; on Debian systems its text is in
/usr/share/common-licenses/Apache-2.0. The firmware (HEX files) is a part of Onceway, with parts of
avr-libc (BSD-3-Clause) and of GCC's run-time library (GPL-3 with the GCC run-time library
exception). The Python packages under /usr/lib/onceway have licences of their own; their texts
stand beside them, in NAME-VERSION.dist-info.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A Python package. hashes: SHA-256 of the wheels that the lock allows."""

    name: str
    version: str
    licence: str
    hashes: tuple[str, ...]


def parts(packages: Path) -> list[Part]:
    """Return all packages but onceway, by name. Raises ValueError for a package without a
    licence.
    """
    locked = _locked()
    found = []
    for item in distributions(path=[str(packages)]):
        name = item.metadata["Name"]
        if name == "onceway":
            continue
        licence = _licence(item)
        if not licence:
            raise ValueError(f"{name} does not say its licence")
        found.append(Part(name, item.version, licence, locked[_key(name)]))
    return sorted(found, key=lambda part: part.name.lower())


def licences(found: list[Part]) -> str:
    """Return the text about licences: about Onceway itself, then one line for each part."""
    lines = [f"{part.name} {part.version}: {part.licence}" for part in found]
    return f"{_OURS}\n" + "\n".join(lines) + "\n"


def cyclonedx(found: list[Part], version: str) -> dict[str, Any]:
    """Return a document of CycloneDX 1.5; its references are package URLs (purl)."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:deb/onceway@{version}",
                "name": "onceway",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{_key(part.name)}@{part.version}",
                "name": part.name,
                "version": part.version,
                "purl": f"pkg:pypi/{_key(part.name)}@{part.version}",
                "licenses": [{"license": {"name": part.licence}}],
                "properties": [
                    {"name": "onceway:wheel:sha256", "value": value} for value in part.hashes
                ],
            }
            for part in found
        ],
    }


def _licence(item: Distribution) -> str:
    """Return a package's licence: its licence expression, else its older free text or
    classifiers.
    """
    expression = item.metadata.get("License-Expression") or item.metadata.get("License") or ""
    if expression and "\n" not in expression and len(expression) < 80:
        return expression
    classes = item.metadata.get_all("Classifier") or []
    return " or ".join(
        line.rpartition(" :: ")[2] for line in classes if line.startswith("License :: ")
    )


def _locked() -> dict[str, tuple[str, ...]]:
    text = LOCK.read_text().replace("\\\n", " ")
    entries = re.findall(r"^([\w.-]+)==\S+(.*)$", text, re.MULTILINE)
    return {_key(name): tuple(re.findall(r"sha256:(\w+)", rest)) for name, rest in entries}


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
