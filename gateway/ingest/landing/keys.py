"""The public keys of trusted gateways, in a file beside the table.

In: TABLE_trusted.json, and the options of `onceway ingest trust`. Out: `Keys`. The file is not at
the landing place, because write access there must not give trust.

  {"schema": 1, "unsigned": false, "until": {"GATEWAY/EPOCH": 4711}, "keys": {"GATEWAY": ["…"]}}

unsigned: whether unsigned batches are accepted from gateways without a key in this file; null: only
for a table that was created by a version of Onceway without signatures. until: number of the last
batch of a feed that is accepted without a signature, because the gateway did not sign yet. keys:
public keys in Base64; a gateway with a key must sign.
"""

import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gateway.errors import OncewayError
from gateway.ingest.delta import connection, local_disk
from gateway.system import gateway_name
from gateway.uplink.manifest import key_id

SCHEMA = 1
KEY_BYTES = 32  # of a public key (RFC 8032, section 5.1.5)
_UNTIL = re.compile(r"(.+/[0-9a-f]{8}):([0-9]{1,12})")


@dataclass(slots=True)
class Keys:
    """The contents of a file of trusted keys. keys: public keys in Base64, by gateway. until:
    number of the last batch that is accepted without a signature, by feed. unsigned: whether
    unsigned batches are accepted from gateways without a key; None: only for a table that was
    created by a version of Onceway without signatures.
    """

    keys: dict[str, list[str]] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    unsigned: bool | None = None

    def add(self, gateway: str, key: str) -> None:
        """Add a key of a gateway. Raises ValueError if it is not a public key, or for a wrong
        name.
        """
        public_key(key)
        if not gateway or "/" in gateway:
            raise ValueError(f"not a gateway's name: {gateway[:60]!r}")
        known = self.keys.setdefault(gateway, [])
        if key not in known:
            known.append(key)

    def text(self) -> str:
        """Return the contents as text for users."""
        how = {
            None: "refused, unless the table is older than signatures",
            True: "accepted",
            False: "refused",
        }[self.unsigned]
        keys = [
            f"{gateway}: {key} (called {key_id(public_key(key))} in messages)"
            for gateway, texts in sorted(self.keys.items())
            for key in texts
        ]
        until = [
            f"{feed}: accepted without a signature up to batch {number}"
            for feed, number in sorted(self.until.items())
        ]
        return "\n".join([*keys, *until, f"batches of a gateway without a key here: {how}"])

    def to_json(self) -> bytes:
        fields = {
            "schema": SCHEMA,
            "unsigned": self.unsigned,
            "until": self.until,
            "keys": self.keys,
        }
        return json.dumps(fields, indent=1, ensure_ascii=False).encode()


def _check_name(gateway: str, old_names: bool) -> None:
    """Raise ValueError for an invalid gateway name. old_names: whether any name that is not empty
    is valid.
    """
    problem = gateway_name.problem(gateway)
    if problem and not (old_names and gateway):
        raise ValueError(
            f"not a valid gateway name: {gateway[:80]!r} {problem}. If a gateway of version 0.2.0"
            " or older landed batches under this name, add --old-names"
        )


def parse(text: bytes) -> Keys:
    """Return the keys in a file. Raises ValueError for anything that `Keys.to_json` does
    not write.
    """
    try:
        fields: Any = json.loads(text)
        if fields["schema"] != SCHEMA or fields["unsigned"] not in (True, False, None):
            raise ValueError(f"unknown schema {str(fields['schema'])[:20]}")
        found = Keys(unsigned=fields["unsigned"])
        for feed, number in fields["until"].items():
            found.until[str(feed)] = int(number)
        for gateway, keys in fields["keys"].items():
            for key in keys:
                found.add(gateway, key)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return found


def public_key(text: str) -> bytes:
    """Return the bytes of a public key. Raises ValueError if `text` is not a key in Base64."""
    try:
        raw = b64decode(text, validate=True)
        Ed25519PublicKey.from_public_bytes(raw)
    except (NotBase64, ValueError) as error:
        raise ValueError(f"no public key of {KEY_BYTES} bytes in Base64: {text[:60]}") from error
    return raw


def keys_url(table: str) -> str:
    """Return the path or URL of a table's file of keys. table: path or URL of the table's
    folder.
    """
    return f"{table.rstrip('/')}_trusted.json"


def load(url: str) -> Keys:
    """Return the keys in a file; no keys if there is no file. Raises OncewayError for invalid
    contents, OSError if the file cannot be read.
    """
    try:
        text = connection.ask(url, lambda fs, path: bytes(fs.cat_file(path)))
    except FileNotFoundError:
        return Keys()
    except OSError:
        raise
    except Exception as error:  # each file system has its own
        raise OSError(f"{type(error).__name__}: {error}") from error
    try:
        return parse(text)
    except ValueError as error:
        raise OncewayError(
            f"this is not a file of trusted keys ({error})",
            url,
            "Restore it from a backup, or give the keys again: onceway ingest trust",
        ) from error


def save(url: str, keys: Keys) -> None:
    """Write the keys to the file at this path or URL (`keys_url`). On a local disk, the file is
    replaced atomically. Raises OSError.
    """
    local = local_disk.local_path(url)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        local_disk.write(local, keys.to_json())
        return
    connection.ask(url, lambda fs, path: fs.pipe_file(path, keys.to_json()))


def change(
    keys: Keys,
    lines: Iterable[str],
    distrust: Iterable[str] = (),
    until: Iterable[str] = (),
    unsigned: bool | None = None,
    old_names: bool = False,
) -> bool:
    """Apply the options of `onceway ingest trust` to `keys`. Return whether there were any.

    lines: output of `onceway uplink key`. distrust: gateways whose keys are removed. until: texts
    GATEWAY/EPOCH:NUMBER. old_names: whether to accept names that only gateways up to version 0.2.0
    could have. Raises OncewayError for an invalid option; do not save `keys` then.
    """
    asked = False
    for gateway in distrust:
        if keys.keys.pop(gateway, None) is None:
            raise OncewayError("no key of this gateway is trusted", gateway)
        asked = True
    for line in filter(str.strip, lines):
        key, _, gateway = (line.strip("\r\n") if old_names else line.strip()).partition(" ")
        try:
            public_key(key)
            _check_name(gateway, old_names)
            keys.add(gateway, key)
        except ValueError as error:
            raise OncewayError(
                str(error), hint="A line is KEY GATEWAY, as `onceway uplink key` prints it"
            ) from error
        asked = True
    for text in until:
        found = _UNTIL.fullmatch(text)
        if found is None:
            raise OncewayError("this is not GATEWAY/EPOCH:NUMBER", text)
        try:
            _check_name(found[1].rpartition("/")[0], old_names)
        except ValueError as error:
            raise OncewayError(str(error), text) from error
        keys.until[found[1]] = int(found[2])
        asked = True
    if unsigned is not None:
        keys.unsigned = unsigned
        asked = True
    return asked
