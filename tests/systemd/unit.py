"""The unit files, read for tests."""

import configparser
from pathlib import Path

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = [SYSTEMD / f"onceway-{name}.service" for name in ("gateway", "uplink")]
"""Units of services that always run."""
BACKUP = SYSTEMD / "onceway-backup.service"


def service(unit: Path) -> configparser.SectionProxy:
    """Return the [Service] section of a unit."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser["Service"]


def listed(unit: Path, key: str) -> list[str]:
    """Return the values of a setting that may appear several times in a unit."""
    lines = unit.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]
