"""Settings: configuration, users, certificates, and owners of the files.

In: a configuration. Out: findings.
"""

import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

from gateway.access.users import Users
from gateway.config import Config, advice
from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.errors import OncewayError
from gateway.links.tls import Tls
from gateway.service.listeners import certificates
from gateway.system.accounts import is_shared, uplink_owner
from gateway.uplink.credentials import FILE
from gateway.uplink.signing import FILE as KEY

_OF_UPLINK = {"batches", KEY}
"""The uplink's own files in the data directory. Only the uplink may read the key."""
_OF_EITHER = re.compile(r"batches|gateway\.db-(wal|shm)|.*\.lock")
_SOON = timedelta(days=30)


def meaning(config: Config) -> Iterator[Finding]:
    """Yield findings about the configuration and about the users that it names."""
    part = "configuration"
    for text in advice(config):
        clause, _, todo = text.partition(". ")
        yield warning(part, clause, todo)
    try:
        Users(config.users_file)
    except OncewayError as error:
        yield _of(part, error)
    if not config.serial and not config.lora:
        yield warning(
            part,
            "no serial port and no radio is served: boards cannot connect",
            "Add a [[serial]] or a [[lora]] section",
        )
    if config.uplink is None:
        yield warning(
            part,
            "there is no landing place: readings go to subscribers and bridges, and are not stored",
            'Add [uplink] with landing = "URL"',
        )


def tls(config: Config) -> Iterator[Finding]:
    """Yield findings about certificates and keys of the listeners and of the page."""
    for listener in config.listener:
        if listener.tls is not None:
            part = f"certificate of {listener.name}"
            made = partial(certificates, listener)
            yield from _pair(part, listener.tls.certificate, listener.tls.key, made)
    page = config.page
    if page is not None and page.certificate is not None and page.key is not None:
        shown = partial(Tls, page.certificate, page.key)
        yield from _pair(f"certificate of the page {page.bind}", page.certificate, page.key, shown)


def _pair(
    part: str, certificate: Path, key: Path, check: Callable[[], object]
) -> Iterator[Finding]:
    """Yield findings about a certificate and its key. check: raises OncewayError if certificate or
    key can't be used.
    """
    try:
        check()
        chain = load_pem_x509_certificates(certificate.read_bytes())
    except PermissionError:
        yield unseen(part, "this account may not read it", "Run the command with sudo")
        return
    except (OncewayError, ValueError, OSError) as error:
        yield _of(part, error)
        return
    yield _dated(part, min(item.not_valid_after_utc for item in chain))
    if key.stat().st_mode & stat.S_IROTH:
        yield wrong(
            part,
            f"everybody on this machine may read its key {key}",
            f"`sudo chmod o-rwx {key}`. Then replace the key: another user may have read it",
        )


def _dated(part: str, ends: datetime) -> Finding:
    remaining = ends - datetime.now(UTC)
    if remaining < timedelta():
        return wrong(part, f"expired on {ends:%Y-%m-%d}: clients refuse it", _RENEW)
    if remaining < _SOON:
        return warning(part, f"expires on {ends:%Y-%m-%d}, in {remaining.days} days", _RENEW)
    return ok(part, f"valid until {ends:%Y-%m-%d}")


_RENEW = "Put a new certificate in its place, then `sudo systemctl reload onceway-gateway`"


def files(data: Path) -> Iterator[Finding]:
    """Yield findings about the data directory: every file in it must belong to the services."""
    part = "files"
    try:
        folder = data.stat()
        foreign = _foreign(data)
    except PermissionError:
        yield unseen(part, f"this account may not look into {data}", "Run the command with sudo")
        return
    for uid, paths in foreign.items():
        names = ", ".join(path.name for path in paths)
        yield wrong(
            part,
            f"these files in {data} do not belong to {_name(uid)}: {names}",
            "The gateway or the uplink was run as another user:"
            f" `sudo chown -R {_name(uid)}: {' '.join(map(str, paths))}`",
        )
    if folder.st_mode & stat.S_IWGRP:
        mode = "2750" if is_shared(data) else "750"
        yield wrong(
            part,
            f"accounts other than {_name(folder.st_uid)} may replace or delete files in {data}",
            f"`sudo chmod {mode} {data}`",
        )
    elif folder.st_mode & stat.S_IRWXO:
        yield warning(
            part, f"everybody on this machine may look into {data}", f"`sudo chmod o-rwx {data}`"
        )
    elif os.geteuid() and not os.access(data, os.W_OK):
        yield unseen(
            part, f"only {_name(folder.st_uid)} may write to {data}", "Run the command with sudo"
        )
    elif not foreign:
        yield ok(part, f"{data} belongs to {_name(folder.st_uid)}")


def _foreign(data: Path) -> dict[int, list[Path]]:
    """Return the files that belong to the wrong user, by the user that should own them."""
    gateway, uplink = data.stat().st_uid, uplink_owner(data)[0]
    found: dict[int, list[Path]] = {}
    for path in sorted(data.iterdir()):
        owner = uplink if path.name in _OF_UPLINK else gateway
        owners = {gateway, uplink} if _OF_EITHER.fullmatch(path.name) else {owner}
        with suppress(FileNotFoundError):  # some files come and go
            if path.stat().st_uid not in owners:
                found.setdefault(owner, []).append(path)
    return found


def credentials(folder: Path) -> Iterator[Finding]:
    """Yield findings about the credentials of the landing place, which the gateway must not read.
    folder: the folder of the configuration.
    """
    file = folder / FILE
    try:
        found = file.stat()
    except OSError:
        return
    if found.st_mode & (stat.S_IRGRP | stat.S_IROTH) or found.st_uid not in (0, os.geteuid()):
        yield wrong(
            "credentials",
            f"accounts other than root may read {file}",
            f"`sudo chown root: {file} && sudo chmod 600 {file}`, and choose new credentials",
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _of(part: str, error: Exception) -> Finding:
    if isinstance(error, OncewayError):
        text = f"{error.where}: {error.what}" if error.where else error.what
        return wrong(part, text, error.hint or _MEND)
    return wrong(part, str(error), _MEND)


_MEND = "Correct the mistake, then run: onceway gateway check-config"
