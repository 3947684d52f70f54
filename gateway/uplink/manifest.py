"""Names and formats at the landing place (README.md): names of batches, and the manifest that
publishes a batch. The module needs no pyarrow.
"""

import hashlib
import json
import re
from dataclasses import dataclass

from gateway.system.gateway_name import shown

SCHEMA_VERSION = 1

HOST_LIMIT = 253
"""Longest host name in characters (RFC 1035, section 2.3.4)."""

LAST_NUMBER = 10**12 - 1
"""Largest number of a batch: twelve digits (`file_stem`)."""

SIGNED_BY = ("key", "signature")
"""Fields that a signature adds to a manifest."""

# One row: device, incarnation, sequence, client, topic, payload, received, boot, monotonic,
# spool_id.
Row = tuple[str, int, int, str | None, str, bytes, int | None, int, int, int]


INCOMING = ".incoming"
"""Name of the folder in which files are written first, beside their final names."""

ASIDE = ".old"
"""Ending of the hidden name of a file that is being replaced."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of batches. gateway: name of the gateway. epoch: eight hex digits, which identify
    one series of batch numbers.
    """

    gateway: str
    epoch: str

    @property
    def folder(self) -> str:
        """Folder of the batches below the landing URL."""
        return f"{self.gateway}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature. key: id of its key (`key_id`); value: Ed25519, 64 bytes in Base64."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest that publishes a batch and describes the Parquet file beside it. size: size of
    that file in bytes; sha256: hex digits.
    """

    origin: Origin
    number: int
    rows: int
    size: int
    sha256: str

    def to_json(self, signature: Signature | None = None) -> bytes:
        fields = {
            "schema": SCHEMA_VERSION,
            "gateway": self.origin.gateway,
            "epoch": self.origin.epoch,
            "number": self.number,
            "rows": self.rows,
            "bytes": self.size,
            "sha256": self.sha256,
        }
        if signature is not None:
            fields |= {"key": signature.key, "signature": signature.value}
        return json.dumps(fields, ensure_ascii=False).encode()

    def signed_bytes(self) -> bytes:
        """Return the signed bytes: the manifest without its signature, after a prefix that no other
        signature by the same key has.
        """
        return b"onceway manifest\n" + self.to_json()

    @property
    def data_name(self) -> str:
        return f"{self.origin.folder}/{file_stem(self.number)}.parquet"

    @property
    def name(self) -> str:
        return f"{self.origin.folder}/{file_stem(self.number)}.json"


def without_signature(text: bytes) -> bytes:
    """Return the bytes of a landed manifest as they would be without its signature. Text that is
    not JSON is returned unchanged.
    """
    try:
        fields = json.loads(text)
        kept = {name: value for name, value in fields.items() if name not in SIGNED_BY}
        return json.dumps(kept, ensure_ascii=False).encode()
    except (ValueError, AttributeError, RecursionError):
        return text


MARKERS = "_newest"
"""The folder of markers below the landing URL. No gateway's name begins with `_`."""

_EPOCH = re.compile(r"[0-9a-f]{8}")
_MARKER = re.compile(r"(.+)\.([0-9a-f]{8})\.([0-9]{12})")


def marker_name(origin: Origin, number: int) -> str:
    """Return the name of an empty file that marks the newest batch of an epoch. One listing of
    MARKERS shows the newest batches of all gateways.
    """
    return f"{MARKERS}/{origin.gateway}.{origin.epoch}.{file_stem(number)}"


def parse_marker(name: str) -> tuple[Origin, int] | None:
    """Return the origin and the batch number in the last part of a marker's name; None for any
    other name.
    """
    found = _MARKER.fullmatch(name)
    return None if found is None else (Origin(found[1], found[2]), int(found[3]))


def cleaned_name(gateway: str) -> str:
    """Return the name of the file that says which batches of a gateway were deleted on purpose."""
    return f"{gateway}/cleaned.json"


def set_aside_name(name: str) -> str:
    """Return the hidden name that the existing file `name` gets while a new file takes its place.
    Used if the landing place may be unable to replace a file atomically.
    """
    folder, _, stem = name.rpartition("/")
    return f"{folder}/{INCOMING}/{stem}{ASIDE}"


def refused_name(gateway: str) -> str:
    """Return the name of the note by which a gateway reports that another gateway owns its name."""
    return f"{gateway}/refused.json"


def parse_refused(text: bytes) -> tuple[str, str, str] | None:
    """Return the contents of a note of refusal: owner number, host, and time (ISO 8601), the last
    two for users. None for an invalid note.
    """
    try:
        note = json.loads(text)
        host, at = (shown(str(note[name])[:HOST_LIMIT]) for name in ("host", "at"))
        return str(note["owner"]), host, at
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def cleaned_json(gateway: str, cleaned: dict[str, int]) -> bytes:
    """Return the contents of the file of deleted batches. cleaned: number of the last deleted
    batch, by epoch.
    """
    fields = {"schema": SCHEMA_VERSION, "gateway": gateway, "cleaned": cleaned}
    return json.dumps(fields, ensure_ascii=False).encode()


def parse_cleaned(text: bytes) -> dict[str, int] | None:
    """Parse a list of deleted batches. Return the number of the last deleted batch by epoch,
    without invalid entries; None if the whole file is damaged.
    """
    try:
        cleaned = json.loads(text)["cleaned"]
        return {
            epoch: number
            for epoch, number in cleaned.items()
            if _EPOCH.fullmatch(epoch) and type(number) is int and 0 < number <= LAST_NUMBER
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def file_stem(number: int) -> str:
    """Return the file name of batch `number` without its ending: twelve digits, so that names sort
    by number.
    """
    return f"{number:012d}"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key_id(public: bytes) -> str:
    """Return the identifier of a public key in manifests and messages: 16 hex digits of its
    SHA-256.
    """
    return sha256(public)[:16]
