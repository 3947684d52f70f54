"""The invited gateway's side of joining. In: the file of an invitation. Out: the membership. A call
blocks its thread.

The gateway's key is created here and stays here. It is on disk before the first request, so a call
that was interrupted at any step can simply be repeated.
"""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gateway.config import split_address
from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.framing import Frames, Kind, pack
from gateway.site.pki import folder as files
from gateway.site.pki.authority import (
    Membership,
    key_pem,
    membership,
    name_in,
    read_key,
    request,
    site_id,
)
from gateway.site.pki.invitation import MOST_BYTES, Answer, Invitation, prove
from gateway.site.pki.tls import expected_authority, why
from gateway.site.strict import parse
from gateway.system.logs import printable

_KEY = "joining.key"
TIMEOUT_S = 20.0


def join(folder: Path, invitation: Invitation, name: str) -> dict[str, str]:
    """Join the site. name: this gateway's name. Return the members with their addresses, as
    configured at the inviter. Raises OncewayError.
    """
    authority = _authority(invitation)
    if name != invitation.name:
        raise OncewayError(
            f"the invitation is for {invitation.name!r}, but this gateway is {name!r}",
            hint=f"Write name = {invitation.name!r} under [gateway] first. If this gateway has"
            f" landed batches, it must keep its name: make an invitation for {name!r} instead",
        )
    files.make_folder(folder)
    with files.os_errors_explained(folder), files.locked(folder):
        _refuse_other_site(folder, authority)
        path = folder / _KEY
        if not path.exists():
            files.replace(path, key_pem(Ed25519PrivateKey.generate()))
        key = read_key(path)
        try:
            answer = _ask(invitation, authority, prove(invitation, request(name, key)))
            if answer.certificate is None:
                text = f"{invitation.inviter} refuses: {printable(answer.refused or '')}"
                raise OncewayError(text, invitation.address, _AGAIN)
        except OncewayError as error:
            if not _is_member(folder):
                raise
            member = f"{name} is already a member of site {site_id(authority)}"
            text = f"{member}. Joining again has failed: {error.what}"
            raise OncewayError(text, hint=_MEMBER) from error
        made = Membership(_checked(answer.certificate, authority, name, key), authority, key)
        if answer.again:
            files.replace(folder / files.RETURNED, b"")
        files.replace(folder / files.MEMBER, made.to_pem())
        files.remove(path)
    return answer.members


_AGAIN = "For a new invitation, run `onceway site invite NAME` on the first gateway"
_MEMBER = (
    "Nothing has to be done: see `onceway site status`. A new invitation is needed only if this"
    " gateway was removed"
)


def _is_member(folder: Path) -> bool:
    """Whether this gateway has a certificate that has not expired."""
    if not (folder / files.MEMBER).exists():
        return False
    return membership(folder).certificate.not_valid_after_utc > datetime.now(UTC)


def _authority(invitation: Invitation) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(invitation.authority.encode())
    except ValueError as error:
        raise OncewayError(
            "the invitation was altered: it lacks the certificate of the site's authority",
            hint=_AGAIN,
        ) from error


def _refuse_other_site(folder: Path, authority: x509.Certificate) -> None:
    if not (folder / files.MEMBER).exists():
        return
    own = membership(folder)
    if own.authority != authority:
        raise OncewayError(
            f"this gateway is a member of site {own.site}, but the invitation is from site"
            f" {site_id(authority)}",
            str(folder),
            "To leave the old site, stop the gateway and move that folder away",
        )


def _ask(invitation: Invitation, authority: x509.Certificate, request: bytes) -> Answer:
    where = invitation.address
    try:
        host, port = split_address(where)
    except ValueError as error:
        raise OncewayError(f"the invitation was altered: {error}", where, _AGAIN) from error
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as plain,
            expected_authority(authority).wrap_socket(plain) as channel,
        ):
            shown = channel.getpeercert(binary_form=True) or b""
            found = name_in(x509.load_der_x509_certificate(shown))
            if found != invitation.inviter:
                raise OncewayError(
                    f"{found} answers at this address, not the inviter {invitation.inviter}",
                    where,
                    "Correct [site.members] on the first gateway, and make a new invitation",
                )
            channel.sendall(pack(Kind.JOIN, request))
            return _answer(channel)
    except ssl.SSLCertVerificationError as error:
        raise OncewayError(
            f"the gateway at that address does not prove that it is the inviter: {why(error)}",
            where,
            _look(invitation),
        ) from error
    except SiteError as error:
        raise OncewayError(
            f"the program at this address is not a gateway: {error.what}",
            where,
            _look(invitation),
        ) from error
    except OSError as error:
        text = f"{invitation.inviter} cannot be reached ({error.strerror or error})"
        raise OncewayError(text, where, _look(invitation)) from error


def _look(invitation: Invitation) -> str:
    return (
        "Was the gateway there started after `onceway site init`, does it still run, and can this"
        " machine reach that port? Then run the same command again: the invitation is valid until"
        f" {invitation.expires:%Y-%m-%d %H:%M} UTC"
    )


def _answer(channel: ssl.SSLSocket) -> Answer:
    frames = Frames(MOST_BYTES)
    while data := channel.recv(1 << 16):
        frames.feed(data)
        for kind, body in frames:
            if kind is Kind.JOIN:
                return parse(Answer, body, MOST_BYTES)
            if kind is Kind.BYE:
                return Answer(refused=body[:1000].decode(errors="replace"))
            raise SiteError(f"it sent a frame of kind {kind.name}")
    raise OSError("it ended the connection without an answer")


def _checked(
    text: str, authority: x509.Certificate, name: str, key: Ed25519PrivateKey
) -> x509.Certificate:
    """Return the certificate, if the authority issued it for this name and key. Raises OncewayError
    otherwise.
    """
    try:
        certificate = x509.load_pem_x509_certificate(text.encode())
        certificate.verify_directly_issued_by(authority)
        mine = certificate.public_key()
    except (ValueError, TypeError, InvalidSignature) as error:
        raise OncewayError("the answer contains no certificate of the site") from error
    if not isinstance(mine, Ed25519PublicKey) or mine != key.public_key():
        raise OncewayError("the answer is a certificate for another key")
    if name_in(certificate) != name:
        raise OncewayError(
            f"the answer is a certificate for {name_in(certificate)!r}, not {name!r}"
        )
    return certificate
