"""TLS 1.3 between members, and explanations for failed handshakes.

In: this gateway's membership. Out: contexts that accept only certificates of this site's authority.
The caller checks the name in a certificate, and whether a peer without a certificate is an invited
gateway.
"""

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from gateway.errors import OncewayError
from gateway.site.pki import folder as files
from gateway.site.pki.authority import Membership, certificate_pem

_NOT_YET, _ENDED = 9, 10
_STRANGERS = (2, 7, 18, 19, 20, 21)
"""Error codes X509_V_ERR_… for an authority that is unknown or did not sign this certificate."""
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it considers this gateway's certificate to be of another site",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it finds this gateway's certificate out of date: compare"
    " the clocks of both gateways, and see `onceway site status`",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses this gateway's certificate, perhaps because a clock"
    " is wrong",
    "TLSV1_ALERT_DECRYPT_ERROR": "it considers this gateway's certificate to be of another site",
}


def serving(folder: Path, membership: Membership) -> ssl.SSLContext:
    """Return the context for incoming connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _show(context, folder, membership)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0  # each connection shows its certificate
    return context


def dialling(folder: Path, membership: Membership) -> ssl.SSLContext:
    context = expected_authority(membership.authority)
    _show(context, folder, membership)
    return context


def expected_authority(authority: x509.Certificate) -> ssl.SSLContext:
    """Return the context for an outgoing connection without a certificate of this gateway.
    authority: the only authority that is accepted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name in it is a member's, not a host's
    context.load_verify_locations(cadata=certificate_pem(authority).decode())
    return context


def why(error: Exception | None) -> str:
    """Return the reason why a connection failed, in words. error: None if the peer closed the
    connection.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        code, now = error.verify_code, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        if code == _NOT_YET:
            return (
                f"its certificate is not valid yet, by this gateway's clock ({now}): set the clock"
            )
        if code == _ENDED:
            return f"its certificate has expired, by this gateway's clock ({now})"
        if code in _STRANGERS:
            return "it shows another site's certificate"
        return f"its certificate is refused ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return _ALERTS.get(reason, f"TLS failed ({reason.lower().replace('_', ' ')})")
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "no program listens there"
    if isinstance(error, UnicodeError):
        return "its address has no valid host name"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return error.strerror or str(error) or type(error).__name__
    return "it ended the connection"


def _show(context: ssl.SSLContext, folder: Path, membership: Membership) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate_pem(membership.authority).decode())
    path = folder / files.MEMBER
    try:
        context.load_cert_chain(path)
    except OSError as error:
        raise OncewayError(f"cannot be used ({error.strerror or error})", str(path)) from error
