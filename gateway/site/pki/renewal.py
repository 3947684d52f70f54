"""Renewal of certificates before they expire.

In: the site's folder, and the certificate that a member has proved over its link. Out: certificates
with the same name, key and start of validity, but a later expiry. So a removal of the old
certificate also covers the new one. The first gateway renews its own certificate, and the
certificates of members that ask over their links.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.pki import folder as files
from gateway.site.pki.authority import (
    MEMBER_FOR,
    Membership,
    authority_of,
    certificate_pem,
    membership,
)

_SOON = timedelta(days=30)


def is_due(certificate: x509.Certificate) -> bool:
    """Whether the remaining time of a certificate is less than half of a new certificate's
    lifetime.
    """
    return certificate.not_valid_after_utc - datetime.now(UTC) < MEMBER_FOR / 2


def problem(certificate: x509.Certificate) -> str | None:
    """Return a sentence if a certificate has expired, or expires within 30 days. Otherwise return
    None.
    """
    ends, now = certificate.not_valid_after_utc, datetime.now(UTC)
    if ends - now > _SOON:
        return None
    verb = "expired" if ends < now else "expires"
    return f"its certificate {verb} on {ends:%Y-%m-%d}: onceway doctor says what to do"


def renew_own(folder: Path) -> Membership | None:
    """Renew the certificate of the gateway that holds the authority. Return None if another gateway
    holds it. Blocks for the disk. Raises OncewayError.
    """
    authority, own = authority_of(folder), membership(folder)
    if authority is None:
        return None
    return _keep(folder, own, authority.renew(own.certificate))


def renewed(folder: Path, certificate: x509.Certificate) -> bytes:
    """Return the renewed certificate of another member in PEM, for the gateway that holds the
    authority. Raises OncewayError.
    """
    authority = authority_of(folder)
    if authority is None:
        raise SiteError("this gateway does not hold the site's certificate authority")
    return certificate_pem(authority.renew(certificate))


def accept(folder: Path, data: bytes) -> Membership:
    """Take over a renewed certificate of this gateway. Blocks for the disk. Raises OncewayError."""
    own = membership(folder)
    try:
        certificate = x509.load_pem_x509_certificate(data)
        certificate.verify_directly_issued_by(own.authority)
    except (ValueError, TypeError, InvalidSignature):
        raise SiteError("it sent no certificate of the site") from None
    same = (
        certificate.subject == own.certificate.subject
        and certificate.public_key() == own.key.public_key()
        and certificate.not_valid_before_utc == own.certificate.not_valid_before_utc
    )
    if not same:
        raise SiteError(
            "it sent a certificate whose name, key or begin differs from this gateway's"
        )
    return _keep(folder, own, certificate)


def _keep(folder: Path, own: Membership, certificate: x509.Certificate) -> Membership:
    made = Membership(certificate, own.authority, own.key)
    with files.os_errors_explained(folder), files.locked(folder):
        now = membership(folder).certificate
        if now != own.certificate:
            raise OncewayError("the certificate was replaced in the meantime", str(folder))
        files.replace(folder / files.MEMBER, made.to_pem())
    return made
