"""The paths of files and folders in the folder of a run."""

import errno
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.errors import OncewayError


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths of a run. gateway: name of the gateway to which `config`, `data`, `mount` and `ports`
    belong; "" if there is only one. mount: the uplink's path to the landing place, a symbolic link
    that an outage replaces by a file.
    """

    root: Path
    gateway: str = ""

    def of(self, gateway: str) -> "Folder":
        """Return the paths of another gateway of the run."""
        return replace(self, gateway=gateway)

    def _own(self, name: str) -> Path:
        return self.root / (f"{name}-{self.gateway}" if self.gateway else name)

    @property
    def config(self) -> Path:
        return self._own("gateway").with_suffix(".toml")

    @property
    def data(self) -> Path:
        return self._own("gateway")

    @property
    def database(self) -> Path:
        return self.data / "gateway.db"

    @property
    def key(self) -> Path:
        """Return the key with which the uplink signs batches."""
        return self.data / "uplink.key"

    @property
    def registry(self) -> Path:
        return self.data / "registry.db"

    @property
    def mount(self) -> Path:
        return self._own("mount")

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def table(self) -> Path:
        return self.root / "table" / "publications"

    @property
    def readings(self) -> Path:
        return self.table.with_name("publications_readings")

    @property
    def quarantine(self) -> Path:
        return self.table.with_name("publications_quarantine")

    @property
    def conflicts(self) -> Path:
        return self.table.with_name("publications_conflicts")

    @property
    def checkpoint(self) -> Path:
        return self.root / "table" / "checkpoint"

    @property
    def history(self) -> Path:
        return self.root / "history.jsonl"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def ports(self) -> Path:
        return self._own("ports")

    @property
    def air(self) -> Path:
        return self.root / "air"

    def port(self, device: str) -> Path:
        """Return the port where the gateway finds the device."""
        return self.ports / device

    def board(self, device: str) -> Path:
        """Return the folder with memories and sockets of a simulated board."""
        return self.root / "boards" / device


def fresh(root: Path) -> Folder:
    """Return the paths of an empty folder. Files of an earlier run are removed. Raises OncewayError
    if the folder has other files, or cannot be created.
    """
    root = root.absolute()
    try:
        if root.exists() and any(root.iterdir()):
            if not any((root / name).is_file() for name in ("history.jsonl", "report.json")):
                raise OncewayError(
                    "this folder holds something other than an earlier run",
                    str(root),
                    "Name another folder with --dir",
                )
            shutil.rmtree(root)
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OncewayError(
            f"cannot create the folder of the run ({error.strerror})",
            f"{error.filename or root}",
            "A run that was killed has left its disk mounted here: unmount it"
            if error.errno == errno.EBUSY
            else None,
        ) from error
    return Folder(root)
