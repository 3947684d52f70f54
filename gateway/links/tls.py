"""TLS for the TCP and WebSocket listeners, and for outgoing connections: version 1.2 and up, with
client certificates if configured.

In: certificate and key files, as they are now. Out: an `ssl.SSLContext`, and the name in a client's
certificate. Log lines about failed handshakes are throttled.
"""

import logging
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)


class Tls:
    """The TLS settings of a listener. client_ca: file of the authorities whose client certificates
    are accepted. client_crl: file with the client certificates that these authorities have revoked.
    client_required: whether to refuse clients without a certificate. name: name of the listener,
    for the log.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_ca: Path | None = None,
        client_crl: Path | None = None,
        client_required: bool = False,
        name: str = "tls",
    ) -> None:
        """Read the files. Raises OncewayError if a file is missing or unreadable, or if certificate
        and key do not belong together.
        """
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        # Python 3.13 sets this flag, and refuses certificates that `openssl x509 -req` makes
        self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.context.sslobject_class = _reporting(name)
        _load_pair(self.context, certificate, key)
        if client_ca is not None:
            _load_authorities(self.context, client_ca)
            if client_crl is not None:
                _load_revoked(self.context, client_crl)
            self.context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL


def client_context(
    authorities: Path | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext:
    """Return the context of an outgoing connection. authorities: file of the authorities whose
    certificates are accepted; None for the system's authorities. certificate, key: this gateway's
    own. Raises OncewayError like `Tls`.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if authorities is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_authorities(context, authorities)
    if certificate is not None and key is not None:
        _load_pair(context, certificate, key)
    return context


def certificate_names(certificate: Path) -> list[str]:
    """Return the host names of a certificate, which may begin with `*`. Empty if it cannot be
    read.
    """
    from cryptography import x509  # takes 5 MB: only for a page with TLS

    try:
        (own, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.DNSName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the common name in a verified certificate of the peer; None if there is no
    certificate, or no such name in it. certificate: as `SSLObject.getpeercert` returns it.
    """
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), None)


def _reporting(listener: str) -> type[ssl.SSLObject]:
    """Return a class of TLS connections that logs failed handshakes. listener: its name, for the
    log. The client's address is unknown during a handshake.
    """
    throttle = LogThrottle(time.monotonic)

    class Reporting(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", None) or (
                    error.reason or str(error)
                ).lower().replace("_", " ")
                if throttle.allows(reason):
                    log.warning("%s: a TLS handshake failed: %s", listener, reason)
                raise

    return Reporting


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _check_readable(path)
    try:
        # An encrypted key would ask for its passphrase on the terminal.
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except _PassphraseError as error:
        raise OncewayError(
            "the key is protected by a passphrase",
            str(key),
            "Use a key without a passphrase, readable by the service only.",
        ) from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OncewayError(
                "the key does not belong to the certificate",
                str(key),
                f"It must be the key of {certificate}.",
            ) from error
        raise OncewayError(
            "certificate or key is not in PEM format", f"{certificate}, {key}"
        ) from error


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise OncewayError("holds no certificate in PEM format", str(path)) from error


def _load_revoked(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise OncewayError("holds no revocation list in PEM format", str(path)) from error
    if not context.cert_store_stats()["crl"]:
        raise OncewayError("holds no revocation list in PEM format", str(path))
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise OncewayError(
            f"cannot be read: {error.strerror}",
            str(path),
            "The service's user must be able to read the file.",
        ) from error


class _PassphraseError(Exception):
    pass


def _refuse_passphrase() -> str:
    raise _PassphraseError
