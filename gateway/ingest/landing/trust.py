"""Trust in batches: whether a manifest is signed with a key that the centre was given, or may be
unsigned.

In: the file of keys (`keys.py`), and manifests. Out: the reason why a gateway is held or a batch is
refused, or None.
"""

import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from dataclasses import replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gateway.errors import OncewayError
from gateway.ingest.landing.keys import Keys, load, public_key
from gateway.ingest.landing.place import Announced, error_text
from gateway.system.amounts import are
from gateway.uplink.manifest import Manifest, Origin, key_id

SHOWN = 5
"""Largest number of gateways that a message names."""

log = logging.getLogger("onceway.ingest")


def say_how(url: str, demanded: bool) -> None:
    """Log a warning if gateways may land batches without a signature. Call this at a start. url:
    URL of the file of keys. demanded: whether the table requires signatures by default. Raises the
    errors of `keys.load`.
    """
    keys = load(url)
    if keys.unsigned or (keys.unsigned is None and not demanded):
        log.warning(
            "gateways may land batches without a signature: %s. After `onceway ingest trust`, a"
            " gateway has to sign; `--refuse-unsigned` requires signatures of all gateways",
            "that was allowed in " + url
            if keys.unsigned
            else "this table is older than signatures",
        )


class Trust:
    """The trusted keys. url: URL of the file of keys. demanded: whether the table requires
    signatures by default.
    """

    def __init__(self, url: str, demanded: bool) -> None:
        self._url = url
        self._demanded = demanded
        self._keys = Keys(unsigned=False)  # until the file was read
        self._owners: dict[str, list[str]] = {}  # the gateways that have a key, by its id
        self._usable: dict[str, Ed25519PublicKey] = {}
        self._complaint: str | None = None
        self._read = False
        self._waiting: set[str] = set()

    def refresh(self) -> None:
        """Read the file of keys again. If it is damaged or unreachable, the known keys stay in
        force, and a line is logged.
        """
        complaint = None
        try:
            self.use(load(self._url))
            self._read = True
        except OncewayError as error:
            complaint = str(error)
        except OSError as error:
            complaint = f"{self._url}: the trusted keys cannot be read: {error_text(error)}"
        if complaint and complaint != self._complaint:
            log.error("%s. Until the file is valid, the ingest uses the previous keys", complaint)
        self._complaint = complaint

    def use(self, keys: Keys) -> None:
        self._keys, self._owners, self._usable = keys, {}, {}
        for gateway, texts in keys.keys.items():
            for raw in map(public_key, texts):
                name = key_id(raw)
                self._owners.setdefault(name, []).append(gateway)
                self._usable[name] = Ed25519PublicKey.from_public_bytes(raw)

    @property
    def strict(self) -> bool:
        """Whether a gateway is held as long as no key is trusted for its name."""
        return self._demanded if self._keys.unsigned is None else not self._keys.unsigned

    def has_key(self, gateway: str) -> bool:
        """Whether a key was given for a gateway."""
        return bool(self._keys.keys.get(gateway))

    def waits(self, gateway: str) -> str | None:
        """Return the reason why no batch of a gateway is accepted; None if its batches are
        accepted.
        """
        if self.has_key(gateway) or not self.strict:
            return None
        if self._complaint and not self._read:
            return self._complaint
        return (
            "its key is not trusted. If the gateway is yours, run `onceway uplink key` on it, and"
            " `onceway ingest trust` here"
        )

    def say(self, gateways: Iterable[str]) -> None:
        """If a gateway among these is untrusted, and was not at the last call, log all untrusted
        gateways among them.
        """
        waiting = {gateway for gateway in gateways if self.waits(gateway)}
        if waiting - self._waiting:
            shown = sorted(waiting)[:SHOWN]
            more = f" and {len(waiting) - SHOWN} more" if len(waiting) > SHOWN else ""
            log.warning(
                "held: %s not trusted: %s%s. Batches of an untrusted gateway wait until `onceway"
                " ingest trust` gets its key (`onceway uplink key`)",
                are(len(waiting), "gateway"),
                ", ".join(shown),
                more,
            )
        self._waiting = waiting

    def check(self, announced: Announced) -> Announced:
        """Return the manifest, with a flaw if the batch must not be trusted: because the gateway's
        key is not trusted (`waits`), or because the signature is wrong or missing. An old manifest
        may lack a signature.
        """
        gateway = announced.gateway
        if announced.flaw is not None:
            return announced
        if not self._keys.keys.get(gateway):
            why = self.waits(gateway)
        elif announced.signature is None:
            old = announced.number <= self._keys.until.get(announced.feed, 0)
            why = None if old else "its manifest is not signed, although this gateway signs batches"
        else:
            why = self._wrong(announced)
        return announced if why is None else replace(announced, flaw=f"not to be trusted: {why}")

    def _wrong(self, announced: Announced) -> str | None:
        """Return the fault of a manifest's signature; None if it is valid."""
        assert announced.signature is not None  # noqa: S101 - the caller has looked
        name = announced.signature.key[:16]
        owners = self._owners.get(name)
        if owners is None:
            return f"it is signed with the key {name}, which is not known here"
        if announced.gateway not in owners:
            return f"it is signed with the key {name}, which is that of the gateway {owners[0]}"
        try:
            self._usable[name].verify(
                b64decode(announced.signature.value, validate=True), _signed(announced)
            )
        except (InvalidSignature, NotBase64, ValueError):
            return "its signature is wrong: the manifest was changed"
        return None


def _signed(announced: Announced) -> bytes:
    """Return the bytes of a manifest that its gateway has signed."""
    origin = Origin(*announced.feed.split("/"))
    manifest = Manifest(origin, announced.number, announced.rows, announced.bytes, announced.sha256)
    return manifest.signed_bytes()
