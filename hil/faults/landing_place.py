"""Damages the landing place: an outage; a batch that lands again, unchanged, damaged, or with other
payloads; a batch number that a clone has taken. In: a landing folder and the uplink's path to it.
Out: the same folder, with the damage that networks, restored backups and cloned cards cause.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hil.formats.batches import damaged as damaged_copy
from hil.formats.batches import relabelled

Copy = Literal["same", "damaged", "reworded", "unsigned", "forged", "altered"]
REWORDED = {"reworded": "!", "unsigned": "?", "forged": "?", "altered": "?"}
"""Text by which the payloads of a copy change."""


class LandingPlace:
    """The landing place. landing: the folder that the ingest reads. mount: the path at which the
    uplink writes, a symbolic link to the folder. key: the key with which the uplink signs batches.
    keys: the key of each gateway by name, if there are several.
    """

    def __init__(
        self, landing: Path, mount: Path, key: Path, keys: Mapping[str, Path] | None = None
    ) -> None:
        self._key = key
        self._keys = keys or {}
        self._landing = landing
        self._mount = mount
        mount.symlink_to(landing.name)

    def unmount(self) -> None:
        """Replace the uplink's folder by a file, so that not even root can write below the path."""
        stand_in = self._mount.with_suffix(".away")
        stand_in.write_text("The landing place is away, by the plan of faults.\n")
        os.replace(stand_in, self._mount)

    def behind(self, path: Path) -> Path:
        """Return the path in the landing folder for a path below `mount`, even while the mount is
        away. Any other path is returned unchanged.
        """
        if path.is_relative_to(self._mount):
            return self._landing / path.relative_to(self._mount)
        return path

    def mount(self) -> None:
        link = self._mount.with_suffix(".back")
        link.symlink_to(self._landing.name)
        os.replace(link, self._mount)

    def repeat(
        self, origin: str, number: int, epoch: str, copy: Copy = "same", under: int = 1
    ) -> int:
        """Land a batch again as batch `under` of another epoch, as a gateway with a restored store
        does. Return the number of rows of the batch. copy: `damaged`, with one wrong bit, as from a
        failing disk; `reworded`, with other payloads for the same keys, as from a board with
        another board's identity; `unsigned`, `forged` and `altered`, the same without a
        signature, signed with another key, or with the signature of the first batch.
        """
        data, manifest = self._copy(origin, number, epoch, under, copy)
        if copy == "damaged":
            data = damaged_copy(data)
        target = self._landing / origin.partition("/")[0] / epoch / f"{under:012d}.parquet"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
        target.with_suffix(".json").write_bytes(manifest)
        return int(json.loads(manifest)["rows"])

    def take_number(self, origin: str, number: int) -> tuple[int, str]:
        """Land a copy of batch `number` under the next free number of its epoch. So the gateway
        finds the number taken, as if a gateway with a clone of its card ran. The copy has the same
        rows in other bytes. Return the taken number, and the SHA-256 of the Parquet file.
        """
        gateway, _, epoch = origin.partition("/")
        for free in count(number + 1):
            target = self._landing / gateway / epoch / f"{free:012d}.parquet"
            data, manifest = self._copy(origin, number, epoch, free)
            with suppress(FileExistsError), target.open("xb") as file:
                file.write(data)
                break
        target.with_suffix(".json").write_bytes(manifest)
        return free, hashlib.sha256(data).hexdigest()

    def _copy(
        self, origin: str, number: int, epoch: str, other: int, copy: Copy = "same"
    ) -> tuple[bytes, bytes]:
        """Return a batch's data and manifest as batch `other` of `epoch`, signed by its gateway
        unless `copy` says otherwise.
        """
        source = self._landing / origin / f"{number:012d}.parquet"
        manifest = source.with_suffix(".json").read_bytes()
        own = self._keys.get(origin.partition("/")[0], self._key).read_bytes()
        keys = {"unsigned": b"", "forged": _another_key(), "altered": None}
        reworded, plain = REWORDED.get(copy, "") * (1 + (other > 1)), copy == "damaged"
        return relabelled(
            source.read_bytes(),
            manifest,
            epoch,
            other,
            keys.get(copy, own),
            reworded=reworded,
            plain=plain,
        )


def _another_key() -> bytes:
    pem = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    return Ed25519PrivateKey.generate().private_bytes(*pem)
