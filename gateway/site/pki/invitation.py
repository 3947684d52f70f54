"""Invitations: a file that lets one more gateway join the site, once.

In, on the first gateway: a name. Out: the file for the new gateway, with the authority's
certificate and a secret. In, later: a request of the new gateway, with its public key and a MAC
over it made with the secret. Out: its certificate. The first request uses up the invitation, in one
durable step. The same request again, from a gateway that was switched off before it had its answer,
gets the same certificate; any other request is refused.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field

from gateway.config import SiteSection
from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.pki import folder as files
from gateway.site.pki.authority import (
    Authority,
    authority_of,
    certificate_pem,
    issued_at,
    membership,
    name_in,
    needed_authority,
)
from gateway.site.pki.member_list import change, checked
from gateway.site.pki.removed import Removed
from gateway.site.strict import parse

MOST_BYTES = 64 * 1024
MOST_REQUEST = 8 * 1024
_MOST_OPEN = 64
_KEPT = timedelta(days=30)
"""Time for which the first gateway remembers used invitations."""
_ID = "^[0-9a-f]{16}$"
_SECRET = "^[0-9a-f]{64}$"  # noqa: S105 - its form
_PURPOSE = b"onceway: join the site\0"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Invitation(_Strict):
    """The contents of an invitation file."""

    onceway: Literal["invitation to a site"] = "invitation to a site"
    version: Literal[1] = 1
    id: Annotated[str, Field(pattern=_ID)]
    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the invited gateway."""
    inviter: Annotated[str, Field(min_length=1, max_length=64)]
    address: Annotated[str, Field(min_length=1, max_length=300)]
    """Address on which the inviter listens for members."""
    authority: Annotated[str, Field(min_length=1, max_length=4096)]
    """Certificate of the authority, PEM."""
    secret: Annotated[str, Field(pattern=_SECRET)]
    expires: datetime


class Request(_Strict):
    """The invited gateway's request to join. mac: MAC of the signing request, made with the
    secret.
    """

    id: Annotated[str, Field(pattern=_ID)]
    csr: Annotated[str, Field(max_length=4096)]
    mac: Annotated[str, Field(pattern=_SECRET)]


class Answer(_Strict):
    """The answer to a request. certificate: PEM; None if the request is refused. refused: reason of
    a refusal, as a sentence.
    """

    certificate: Annotated[str, Field(max_length=4096)] | None = None
    refused: Annotated[str, Field(max_length=1000)] | None = None
    members: dict[str, str] = {}
    """Members with their addresses, as configured at the inviter."""
    again: bool = False
    """Whether the name had a certificate before."""


class _Open(_Strict):
    """An open invitation, as the first gateway stores it."""

    name: str
    secret: str
    expires: datetime
    address: str | None = None
    """Address of the invited gateway, for the signed list of members."""


class _Spent(_Open):
    """A used invitation. certificate: PEM. again: see `Answer`."""

    certificate: str
    used: datetime
    again: bool = False


@dataclass(frozen=True, slots=True)
class _Record:
    open: Path
    spent: Path


def invite(
    folder: Path,
    site: SiteSection,
    inviter: str,
    name: str,
    hours: int,
    address: str | None = None,
) -> Invitation:
    """Create an invitation. Earlier invitations of the name become invalid. address: HOST:PORT of
    the invited gateway. When the gateway joins, the signed list of members gets its name and this
    address. None if [site.members] names the gateway already. Raises OncewayError.
    """
    authority = needed_authority(folder)
    if name == inviter:
        raise OncewayError(
            f"{name!r} is this gateway itself",
            hint="A member renews its certificate by itself, at the latest when it starts",
        )
    if address is not None:
        checked({**site.members, name: address})
    elif name not in site.members:
        raise OncewayError(
            f"[site.members] has no {name!r}",
            hint=f"Give its address: onceway site invite {name} --address 10.0.0.2:8884",
        )
    made = Invitation(
        id=secrets.token_hex(8),
        name=name,
        inviter=inviter,
        address=site.members[inviter],
        authority=certificate_pem(authority.certificate).decode(),
        secret=secrets.token_hex(32),
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours),
    )
    with files.os_errors_explained(folder), files.locked(folder):
        place = folder / files.INVITATIONS
        files.make_folder(place)
        _tidy(place, name)
        kept = _Open(name=name, secret=made.secret, expires=made.expires, address=address)
        files.replace(_record(folder, made.id).open, kept.model_dump_json().encode())
    return made


def withdraw(folder: Path, name: str) -> bool:
    """Withdraw open invitations for this name. Return whether there was one."""
    with files.os_errors_explained(folder), files.locked(folder):
        return _tidy(folder / files.INVITATIONS, name)


def read(path: Path) -> Invitation:
    """Read an invitation. Raises OncewayError."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OncewayError(
            f"the invitation cannot be read ({error.strerror})", str(path)
        ) from error
    try:
        return parse(Invitation, data, MOST_BYTES)
    except SiteError as error:
        raise OncewayError(
            f"this is not an invitation, or it was altered ({error.what})",
            str(path),
            "Make a new one on the first gateway: onceway site invite NAME",
        ) from error


def prove(invitation: Invitation, csr: bytes) -> bytes:
    """Return the request to join, with a proof that the sender knows the invitation's secret."""
    mac = _mac(invitation.secret, invitation.id, csr)
    return Request(id=invitation.id, csr=csr.decode(), mac=mac).model_dump_json().encode()


def answer(folder: Path, members: dict[str, str], data: bytes) -> tuple[bytes, str]:
    """Return the answer to a request, and a line for this gateway's log. Waits for the disk."""
    try:
        spent = _grant(folder, parse(Request, data, MOST_REQUEST))
        if spent.address is not None and members.get(spent.name) != spent.address:
            members = {**members, spent.name: spent.address}
            change(folder, members)
    except OncewayError as error:
        return Answer(refused=error.what).model_dump_json().encode(), f"refused: {error.what}"
    made = Answer(certificate=spent.certificate, members=members, again=spent.again)
    return made.model_dump_json().encode(), f"{spent.name} has received its certificate"


def _grant(folder: Path, request: Request) -> _Spent:
    """Grant a request, or return the result again if the same request was granted before. If the
    request is refused, raises SiteError with a sentence for the invited gateway.
    """
    authority = authority_of(folder)
    if authority is None:
        raise SiteError("this gateway does not hold the site's certificate authority")
    with files.os_errors_explained(folder), files.locked(folder):
        record = _record(folder, request.id)
        kept = _kept(record)
        expected = _mac(kept.secret, request.id, request.csr.encode())
        if not hmac.compare_digest(expected, request.mac):
            raise SiteError(
                "the request has no proof of the secret in the invitation: the file was altered"
            )
        key = _requested(request.csr, kept.name)
        if isinstance(kept, _Spent):
            return _same(kept, key)
        if kept.expires < datetime.now(UTC):
            raise SiteError(f"the invitation expired at {kept.expires:%Y-%m-%d %H:%M} UTC")
        certificate, again = _issue(folder, authority, kept.name, key)
        spent = _Spent(
            **kept.model_dump(), certificate=certificate, used=datetime.now(UTC), again=again
        )
        # from here on, no other key can get a certificate
        files.replace(record.spent, spent.model_dump_json().encode())
        files.remove(record.open)
        return spent


def _kept(record: _Record) -> _Open | _Spent:
    for path, kind in ((record.spent, _Spent), (record.open, _Open)):
        try:
            return parse(kind, path.read_bytes(), MOST_BYTES)
        except FileNotFoundError:
            continue
    raise SiteError(
        "the invitation is not known here: it was withdrawn or expired, or a newer one was made for"
        " that name"
    )


def _same(kept: _Spent, key: Ed25519PublicKey) -> _Spent:
    issued = x509.load_pem_x509_certificate(kept.certificate.encode())
    if issued.public_key() != key:
        raise SiteError(
            f"the invitation was used at {kept.used:%Y-%m-%d %H:%M} UTC, by another machine, or by"
            " this machine before it lost its key; if you do not know of such a use, remove the"
            " member"
        )
    return kept


def _issue(
    folder: Path, authority: Authority, name: str, key: Ed25519PublicKey
) -> tuple[str, bool]:
    """Issue a certificate for a name. Return the certificate in PEM, and whether the name had one
    before. An earlier certificate is revoked, because a name belongs to one machine.
    """
    removed = Removed(folder, membership(folder))
    until = removed.until(name)
    certificate = authority.issue(name, key, after=until + 1)
    removed.heard([authority.remove(name, issued_at(certificate) - 1)])
    removed.write()
    return certificate_pem(certificate).decode(), until > 0


def _requested(text: str, name: str) -> Ed25519PublicKey:
    try:
        csr = x509.load_pem_x509_csr(text.encode())
        key = csr.public_key()
        proved = csr.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise SiteError("the join request contains no certificate signing request (CSR)") from None
    if not proved or not isinstance(key, Ed25519PublicKey):
        raise SiteError("the request does not prove that its sender has the key")
    if name_in(csr) != name:
        raise SiteError(f"the invitation is for {name!r}, but the request has another name")
    return key


def _tidy(place: Path, name: str) -> bool:
    """Delete outdated and damaged files, and open invitations for `name`. Return whether there was
    an open invitation for `name`. Raises OncewayError if too many invitations for other names are
    open.
    """
    now, remaining, withdrawn = datetime.now(UTC), 0, False
    for path in sorted(place.glob("*.open")):
        try:
            kept = parse(_Open, path.read_bytes(), MOST_BYTES)
        except SiteError:
            kept = None
        if kept is None or kept.name == name or kept.expires < now:
            path.unlink()
            withdrawn |= kept is not None and kept.name == name
        else:
            remaining += 1
    for path in place.glob("*.spent"):
        if datetime.fromtimestamp(path.stat().st_mtime, UTC) < now - _KEPT:
            path.unlink()
    if remaining >= _MOST_OPEN:
        raise OncewayError(
            f"no more invitations can be made: {remaining} are open",
            hint="Use the open invitations, or wait until they expire",
        )
    return withdrawn


def _record(folder: Path, number: str) -> _Record:
    if not re.fullmatch(_ID, number):
        raise SiteError("that is not an invitation")
    place = folder / files.INVITATIONS
    return _Record(place / f"{number}.open", place / f"{number}.spent")


def _mac(secret: str, number: str, csr: bytes) -> str:
    text = _PURPOSE + number.encode() + b"\0" + csr
    return hmac.new(bytes.fromhex(secret), text, hashlib.sha256).hexdigest()
