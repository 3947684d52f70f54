"""Certificates for tests: an authority, and certificates that it signs."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_HOUR = datetime.timedelta(hours=1)
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority that writes PEM files into a folder."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._build(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(_SIGNS, True)
        )
        self.path = folder / f"{name.replace(' ', '-')}.pem"
        self.path.write_bytes(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def issue(
        self,
        name: str,
        *,
        passphrase: bytes | None = None,
        identifiers: bool = True,
        expired: bool = False,
    ) -> tuple[Path, Path]:
        """Issue a certificate for 127.0.0.1; return the files of the certificate and its key.
        passphrase: encrypts the key. identifiers: whether the certificate names its own key and
        that of its issuer, as RFC 5280 requires and many authorities do not do. expired: whether
        the certificate expired an hour ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = (
            self._build(subject, key.public_key(), identifiers, _HOUR * (-1 if expired else 24))
            .add_extension(addresses, False)
            .sign(self._key, hashes.SHA256())
        )
        protection = (
            serialization.BestAvailableEncryption(passphrase)
            if passphrase
            else serialization.NoEncryption()
        )
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
            )
        )
        return paths

    def revoke(self, *certificates: Path) -> Path:
        """Return the file of a list that revokes these certificates."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - _DAY)
            .next_update(now + _DAY)
        )
        for path in certificates:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(serial)
                .revocation_date(now - _DAY)
                .build()
            )
        path = self._folder / "revoked.crl"
        path.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return path

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        identifiers: bool = True,
        left: datetime.timedelta = _DAY,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now - _DAY, now + left
        )
        if not identifiers:
            return builder
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        return builder.add_extension(issuer, False).add_extension(own, False)
