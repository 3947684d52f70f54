"""The file of users: names and memory-hard password hashes.

In: a name and a password. Out: a line `name:scrypt:N:r:p:salt:hash` (hexadecimal), and later the
check of a password. Only the service can read the file (mode 0600). The file is replaced as a
whole, so a reader never sees half of it.
"""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config import INSIDE
from gateway.errors import NotAllowed, OncewayError, Unknown

_N, _R, _P = 1 << 15, 8, 1  # 32 MiB and about 80 ms on a Raspberry Pi 4 (RFC 7914, section 2)
_MAXIMUM = 1 << 26
_SALT, _HASH = 16, 32


class UsersError(OncewayError):
    """The file of users is unusable, or does not allow the change."""


class UnknownUser(UsersError):
    """Error: the file of users has no user with this name."""

    exit_code = Unknown.exit_code


@dataclass(frozen=True, slots=True)
class Hash:
    """A password's hash by scrypt. n, r, p: cost parameters (RFC 7914, section 2)."""

    n: int
    r: int
    p: int
    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: bytes) -> "Hash":
        salt = secrets.token_bytes(_SALT)
        return cls(_N, _R, _P, salt, _scrypt(password, salt, _N, _R, _P))

    @property
    def computable(self) -> bool:
        """Whether scrypt accepts the cost parameters (RFC 7914, section 2) and needs at most 64
        MiB, and the hash has the right length.
        """
        fits = min(self.r, self.p) > 0 and 128 * self.r * (self.n + self.p + 2) <= _MAXIMUM
        return fits and self.n > 1 and self.n.bit_count() == 1 and len(self.key) == _HASH

    def fits(self, password: bytes) -> bool:
        """Whether `password` is the one of this hash. A wrong password takes as long as the right
        one.
        """
        return hmac.compare_digest(self.key, _scrypt(password, self.salt, self.n, self.r, self.p))

    def __str__(self) -> str:
        return f"scrypt:{self.n}:{self.r}:{self.p}:{self.salt.hex()}:{self.key.hex()}"


NOBODY = Hash(_N, _R, _P, bytes(_SALT), bytes(_HASH))
"""A hash that fits no password. A comparison takes as long as with a real hash, so response times
do not reveal which names exist.
"""


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_MAXIMUM, dklen=_HASH)


class Users:
    """The users in a file; empty if the file does not exist."""

    def __init__(self, path: Path) -> None:
        """Read the file. If it does not exist, there are no users. Raises UsersError; for a faulty
        line, the error contains the line's number, never its content.
        """
        self.path = path
        self.hashes: dict[str, Hash] = {}
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except PermissionError as error:
            raise NotAllowed(
                "this account may not read the file of users",
                str(path),
                "Run the command with sudo",
            ) from error
        except OSError as error:
            raise UsersError(
                f"the file of users cannot be read ({error.strerror})", str(path)
            ) from error
        except UnicodeDecodeError as error:
            raise UsersError(
                f"the file of users is not UTF-8 (byte {error.start})", str(path)
            ) from error
        for number, line in enumerate(text.splitlines(), 1):
            if line and not line.startswith("#"):
                self._read(number, line)

    def _read(self, number: int, line: str) -> None:
        try:
            name, method, *rest, salt, key = line.split(":")
            n, r, p = map(int, rest)
            found = Hash(n, r, p, bytes.fromhex(salt), bytes.fromhex(key))
            if method != "scrypt" or not name or not found.computable:
                raise ValueError
            self.hashes[name] = found
        except ValueError:
            raise UsersError(
                "this line does not describe a user",
                f"{self.path}:{number}",
                "Remove the line, and add the user again: onceway user add",
            ) from None

    def add(self, name: str, password: str) -> None:
        """Add a user, or change a user's password, and write the file. Raises UsersError if the
        name is not valid, the password is empty, or the file cannot be written.
        """
        if (
            not name
            or set(name) & set(":\n/+#$%")
            or name.startswith(("#", INSIDE))
            or not name.isprintable()
        ):
            raise UsersError(
                f"{name!r} is not a valid user name",
                hint=f"Use printable characters except : / + # $ %, and do not begin with {INSIDE}",
            )
        if not password:
            raise UsersError("an empty password protects nothing")
        self.hashes[name] = Hash.of(password.encode())
        self._save()

    def remove(self, name: str) -> None:
        if self.hashes.pop(name, None) is None:
            raise UnknownUser(
                f"there is no user {name!r}", str(self.path), "`onceway user list` shows them"
            )
        self._save()

    def _save(self) -> None:
        new = self.path.with_name(self.path.name + ".new")
        text = "".join(f"{name}:{item}\n" for name, item in sorted(self.hashes.items()))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            new.unlink(missing_ok=True)
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as output:
                output.write(text)
                output.flush()
                os.fsync(output.fileno())
            if os.geteuid() == 0:  # the service must be able to read it
                owner = (self.path if self.path.exists() else self.path.parent).stat()
                os.chown(new, owner.st_uid, owner.st_gid)
            new.replace(self.path)
        except OSError as error:
            raise UsersError(
                f"the file of users cannot be written ({error.strerror})", str(self.path)
            ) from error
