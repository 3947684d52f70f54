"""The site's own authority, and the certificates of its members (X.509, Ed25519).

In: names and public keys. Out: certificates, and statements that a member is removed. Only the
first gateway of the site has the authority's key. A certificate contains the member's name. Its
validity begins CLOCK_OFF before its time of issue, so that clocks may differ by that much.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.pki import folder as files

CLOCK_OFF = timedelta(days=1)
"""Tolerated difference between the clocks of two members."""
MEMBER_FOR = timedelta(days=3650)
_AUTHORITY_FOR = timedelta(days=9125)
_PLAUSIBLE = datetime(2025, 1, 1, tzinfo=UTC)
_PURPOSE = b"onceway: removed from the site\0"


@dataclass(frozen=True, slots=True)
class Removal:
    """A statement of the authority: certificates issued to `name` up to `until` (UTC, seconds) are
    revoked.
    """

    name: str
    until: int
    signature: bytes

    def to_json(self) -> dict[str, str | int]:
        return {
            "name": self.name,
            "until": self.until,
            "signature": b64encode(self.signature).decode(),
        }


def removal_from_json(value: object) -> Removal:
    """Return a removal from JSON. Raises SiteError if the value is malformed."""
    match value:
        case {"name": str(name), "until": int(until), "signature": str(text), **more} if not more:
            try:
                return Removal(name, until, b64decode(text, validate=True))
            except ValueError:
                pass
    raise SiteError("the text is not a valid statement about a removed member")


@dataclass(frozen=True, slots=True)
class Membership:
    """The membership of this gateway in a site."""

    certificate: x509.Certificate
    authority: x509.Certificate
    key: Ed25519PrivateKey

    @property
    def name(self) -> str:
        return name_in(self.certificate)

    @property
    def site(self) -> str:
        return site_id(self.authority)

    def says(self, removal: Removal) -> bool:
        """Whether a removal is signed by the authority."""
        return self.has_signed(removal.signature, _signed(removal.name, removal.until))

    def has_signed(self, signature: bytes, data: bytes) -> bool:
        """Whether `signature` is the authority's signature of `data`."""
        key = self.authority.public_key()
        if not isinstance(key, Ed25519PublicKey):
            return False
        try:
            key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def to_pem(self) -> bytes:
        return b"".join(
            (key_pem(self.key), certificate_pem(self.certificate), certificate_pem(self.authority))
        )


class Authority:
    """The authority of a site, on its first gateway."""

    def __init__(self, key: Ed25519PrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    def issue(self, name: str, key: Ed25519PublicKey, after: int = 0) -> x509.Certificate:
        """Return a new certificate for a member. after: a time in UTC seconds. The certificate
        counts as issued after this time, even if the clock shows an earlier one.
        """
        issued = max(_now(), datetime.fromtimestamp(after + 1, UTC))
        return self._signed(_common(name), key, issued - CLOCK_OFF, issued + MEMBER_FOR)

    def renew(self, certificate: x509.Certificate) -> x509.Certificate:
        """Return a certificate with the same name, key and beginning of validity, and a later
        end.
        """
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise SiteError("the certificate's key is not an Ed25519 key")
        begins = certificate.not_valid_before_utc
        return self._signed(certificate.subject, key, begins, _now() + MEMBER_FOR)

    def _signed(
        self, subject: x509.Name, key: Ed25519PublicKey, begins: datetime, ends: datetime
    ) -> x509.Certificate:
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return (
            _builder(subject, self.certificate.subject, key, begins, ends)
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(_usage(signs=False), True)
            .add_extension(x509.ExtendedKeyUsage(usage), False)
            .add_extension(_issuer(self._key.public_key()), False)
            .sign(self._key, None)
        )

    def remove(self, name: str, until: int) -> Removal:
        return Removal(name, until, self.sign(_signed(name, until)))

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, which must begin with a text that names its kind."""
        return self._key.sign(data)


def found(folder: Path, name: str) -> Membership:
    """Create a site whose first member is this gateway. Files of an interrupted call are kept and
    used. Raises OncewayError, for example if this gateway is a member of a site already.
    """
    files.make_folder(folder)
    with files.os_errors_explained(folder), files.locked(folder):
        if (folder / files.MEMBER).exists():
            site = membership(folder).site
            raise OncewayError(
                f"this gateway is a member of site {site} already",
                str(folder),
                "See: onceway site status",
            )
        authority = authority_of(folder) or _make(folder)
        key = Ed25519PrivateKey.generate()
        made = Membership(authority.issue(name, key.public_key()), authority.certificate, key)
        files.replace(folder / files.MEMBER, made.to_pem())
        return made


def authority_of(folder: Path) -> Authority | None:
    """Return the authority, or None on all members but the first."""
    path = folder / files.AUTHORITY
    with files.os_errors_explained(folder):
        if not path.exists():
            return None
    key, (certificate,) = _read(path, 1)
    return Authority(key, certificate)


def needed_authority(folder: Path) -> Authority:
    """Return the authority. Raises OncewayError if it is at another member."""
    found = authority_of(folder)
    if found is None:
        raise OncewayError(
            "this gateway cannot do that: the site's certificate authority is on another gateway",
            str(folder),
            "Use the gateway on which `onceway site init` was run",
        )
    return found


def membership(folder: Path, name: str | None = None) -> Membership:
    """Return this gateway's membership. name: the name that the certificate must have. Raises
    OncewayError if there is no certificate, or it has another name.
    """
    path = folder / files.MEMBER
    with files.os_errors_explained(folder):
        if not path.exists():
            raise OncewayError(
                "this gateway has no certificate of a site",
                str(path),
                "On the first gateway: `onceway site init`. On any other: `onceway site join FILE`",
            )
    key, (certificate, authority) = _read(path, 2)
    found = Membership(certificate, authority, key)
    if name is not None and name != found.name:
        raise OncewayError(
            f"the certificate belongs to {found.name!r}, but this gateway is {name!r}",
            str(path),
            "For a new certificate, run `onceway site invite NAME` on the first gateway",
        )
    return found


def name_in(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the member's name, or an empty string."""
    for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
        return str(part.value)
    return ""


def issued_at(certificate: x509.Certificate) -> int:
    """Return the time of issue, UTC in seconds."""
    return int((certificate.not_valid_before_utc + CLOCK_OFF).timestamp())


def site_id(authority: x509.Certificate) -> str:
    """Return the identifier of a site for people: 16 hex digits."""
    return authority.fingerprint(hashes.SHA256()).hex()[:16]


def request(name: str, key: Ed25519PrivateKey) -> bytes:
    """Return a certificate signing request in PEM."""
    made = x509.CertificateSigningRequestBuilder().subject_name(_common(name)).sign(key, None)
    return made.public_bytes(Encoding.PEM)


def key_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def read_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key. Raises OncewayError if the file cannot be read, or is damaged."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise OncewayError(f"cannot be read ({error.strerror})", str(path), _AS_ROOT) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _damaged(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged(path)
    return key


_AS_ROOT = "Run the command with sudo, or as the gateway's account"


def _now() -> datetime:
    """Return the time. Raises OncewayError if the clock is implausible: a certificate issued in
    1970 would end before its first use.
    """
    now = datetime.now(UTC)
    if now < _PLAUSIBLE:
        raise OncewayError(
            f"this machine's clock shows {now:%Y-%m-%d}: a certificate issued now would expire"
            " before its first use",
            hint="Set the clock; `timedatectl` shows whether it is set from the network",
        )
    return now


def _make(folder: Path) -> Authority:
    key = Ed25519PrivateKey.generate()
    name, now = _common("Onceway site"), _now()
    certificate = (
        _builder(name, name, key.public_key(), now - CLOCK_OFF, now + _AUTHORITY_FOR)
        .add_extension(x509.BasicConstraints(True, 0), True)
        .add_extension(_usage(signs=True), True)
        .sign(key, None)
    )
    files.replace(folder / files.AUTHORITY, key_pem(key) + certificate_pem(certificate))
    return Authority(key, certificate)


def _read(path: Path, certificates: int) -> tuple[Ed25519PrivateKey, list[x509.Certificate]]:
    key = read_key(path)
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise _damaged(path) from error
    if len(chain) != certificates or chain[0].public_key() != key.public_key():
        raise _damaged(path)
    return key, chain


def _damaged(path: Path) -> OncewayError:
    return OncewayError(
        "this file of the site is damaged",
        str(path),
        "Restore it from a backup; or move it away and join again with a new invitation",
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Ed25519PublicKey,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer,
        subject,
        key,
        x509.random_serial_number(),
        begins,
        ends,
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)


def _common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _issuer(key: Ed25519PublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(name: str, until: int) -> bytes:
    return _PURPOSE + json.dumps([name, until]).encode()
