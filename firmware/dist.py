"""The library as a ZIP.

    python dist.py FOLDER

In: the library in this folder. Out: `FOLDER/Onceway-VERSION.zip`, which the Arduino IDE can install
(Sketch, Include Library, Add .ZIP Library).
"""

import json
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EARLIEST = (1980, 1, 1, 0, 0, 0)  # so that equal content is an equal file


def files() -> list[Path]:
    """Return the files of the library, as library.json lists them for PlatformIO."""
    described = json.loads((HERE / "library.json").read_text())
    named = [HERE / name for name in described["export"]["include"]]
    found = [path for name in named for path in ([name] if name.is_file() else name.rglob("*"))]
    return sorted(path for path in found if path.is_file())


def pack(folder: Path) -> Path:
    version = json.loads((HERE / "library.json").read_text())["version"]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"Onceway-{version}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files():
            entry = zipfile.ZipInfo(f"Onceway/{path.relative_to(HERE)}", EARLIEST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return target


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))
