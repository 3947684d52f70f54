"""Extract Home Assistant's tables of device classes for a test.

`python -m tests.mirror.sensor_tables FOLDER` writes `sensor_tables.json` next to this file. FOLDER
has the unpacked package `homeassistant` from PyPI (`pip download --no-deps homeassistant`, unzip).
Only the modules with the tables are loaded. Stand-ins replace all other packages that they import.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

HERE = Path(__file__).with_name("sensor_tables.json")
_READ = {
    "homeassistant",
    "homeassistant.const",
    "homeassistant.components",
    "homeassistant.components.sensor",
    "homeassistant.components.sensor.const",
    "homeassistant.util",
    "homeassistant.util.unit_conversion",
}


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An importer of modules in which every name exists."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        first = name.partition(".")[0]
        if name in _READ or first in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module: ModuleType) -> None: ...


def main(folder: Path) -> None:
    sys.meta_path.insert(0, _StandIns())
    sys.path.insert(0, str(folder))
    for name in ("homeassistant.components.sensor", "homeassistant.util"):
        package = ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package  # without running its __init__.py
    sensor: Any = importlib.import_module("homeassistant.components.sensor.const")
    version = importlib.import_module("homeassistant.const").__version__
    tables = {
        "source": f"homeassistant {version} (Apache-2.0), homeassistant/components/sensor/const.py",
        "units": _plain(sensor.DEVICE_CLASS_UNITS),
        "state_classes": _plain(sensor.DEVICE_CLASS_STATE_CLASSES),
    }
    HERE.write_text(json.dumps(tables, ensure_ascii=False, indent=1) + "\n", encoding="utf8")


def _plain(table: dict[Any, set[Any]]) -> dict[str, list[str | None]]:
    return {
        str(key): sorted((None if it is None else str(it) for it in found), key=str)
        for key, found in sorted(table.items())
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
