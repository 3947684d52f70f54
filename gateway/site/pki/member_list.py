"""The signed list of a site's members: a change at the first gateway reaches all members without a
restart.

In: the members with their addresses, on the gateway with the site's authority; signed lists of
other members. Out: the newest list, in the file that `gateway/config/site_members.py` reads. The
number of a list is the time at which it was signed, so a restored first gateway makes newer lists.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.config import SiteSection
from gateway.config.site_members import FILE
from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.pki import folder as files
from gateway.site.pki.authority import Membership, membership, needed_authority
from gateway.site.strict import parse

MOST_BYTES = 64 * 1024
_NONE = 0, ""
_PURPOSE = b"onceway: members of the site\0"


class MemberList(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, Field(gt=0, lt=1 << 53)]
    members: Annotated[dict[str, str], Field(min_length=1, max_length=16)]
    """Addresses by name, as in `[site.members]`."""
    signature: Annotated[str, Field(max_length=128)]
    """Signature of the site's authority, in base64."""

    @property
    def rank(self) -> tuple[int, str]:
        """Number and signature. Of two lists, the one with the higher rank counts. Two lists have
        the same number only if the authority's key has been copied.
        """
        return self.number, self.signature

    def is_signed(self, own: Membership) -> bool:
        """Whether the authority has signed this list, and the list is a valid `[site.members]`."""
        try:
            SiteSection(members=self.members)
            signature = b64decode(self.signature, validate=True)
        except ValueError:
            return False
        return own.has_signed(signature, _signed(self.number, self.members))


class Lists:
    """The newest list of members that this gateway knows, and its file."""

    def __init__(self, folder: Path, own: Membership) -> None:
        self._folder, self._own = folder, own
        self._file = files.WatchedFile(
            folder / FILE, "Move the file away: another member sends the list again"
        )
        self.newest: MemberList | None = None

    @property
    def rank(self) -> tuple[int, str]:
        """Rank of the newest list; the lowest rank if there is no list."""
        return self.newest.rank if self.newest is not None else _NONE

    def refresh(self) -> bool:
        """Read the file of the list if the file has changed. If the list in it is newer than
        `newest`, take it over and return True. Raises OncewayError.
        """
        return self._file.read(lambda data: self.heard(_parsed(data)))

    def heard(self, found: MemberList) -> bool:
        """If a list is newer than `newest`, take it over and return True. Raises SiteError if the
        authority did not sign the newer list.
        """
        if found.rank <= self.rank:
            return False
        if not found.is_signed(self._own):
            raise SiteError("the site's certificate authority did not sign that list of members")
        self.newest = found
        return True

    def save(self) -> None:
        """Write the newest list, if the list in the file is older. Blocks for the disk. Raises
        OncewayError.
        """
        with files.os_errors_explained(self._folder), files.locked(self._folder):
            if self.newest is not None and self.rank > _rank(self._folder):
                _write(self._folder, self.newest)


def sign(folder: Path, members: Mapping[str, str]) -> MemberList:
    """Sign and write a new list, and return it. Only for the gateway with the authority. The caller
    must hold the folder's lock. Raises OncewayError.
    """
    authority = needed_authority(folder)
    checked(members)
    number = max(int(datetime.now(UTC).timestamp()), _rank(folder)[0] + 1)
    signature = b64encode(authority.sign(_signed(number, members))).decode()
    made = MemberList(number=number, members=dict(members), signature=signature)
    _write(folder, made)
    return made


def checked(members: Mapping[str, str]) -> None:
    """Raise OncewayError if a site cannot have these members."""
    try:
        SiteSection(members=dict(members))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise OncewayError(f"{where}: {first['msg']}") from error


def change(folder: Path, members: Mapping[str, str]) -> None:
    """Take the folder's lock. Then sign a new list and write it. Raises OncewayError."""
    with files.os_errors_explained(folder), files.locked(folder):
        sign(folder, members)


def _rank(folder: Path) -> tuple[int, str]:
    """Return the rank of the list in the file; the lowest rank if the authority did not sign it."""
    try:
        found = _parsed((folder / FILE).read_bytes())
    except (FileNotFoundError, SiteError):
        return _NONE
    return found.rank if found.is_signed(membership(folder)) else _NONE


def _parsed(data: bytes) -> MemberList:
    return parse(MemberList, data, MOST_BYTES)


def _write(folder: Path, made: MemberList) -> None:
    files.replace(folder / FILE, made.model_dump_json(indent=1).encode() + b"\n")


def _signed(number: int, members: Mapping[str, str]) -> bytes:
    return _PURPOSE + json.dumps([number, sorted(members.items())]).encode()
