"""What the owner wrote: configuration, users, certificates, and whose the files are.

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
"""What the uplink has in the data directory. The key it alone may read."""
_OF_EITHER = re.compile(r"batches|gateway\.db-(wal|shm)|.*\.lock")
_SOON = timedelta(days=30)


def meaning(config: Config) -> Iterator[Finding]:
    """What the file allows, and the users that it names."""
    part = "configuration"
    for text in advice(config):
        what, _, todo = text.partition(". ")
        yield warning(part, what, todo)
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
            "there is no landing place: readings go to subscribers and bridges, and none is kept",
            'Add [uplink] with landing = "URL"',
        )


def tls(config: Config) -> Iterator[Finding]:
    """Certificates and keys of the listeners and of the page."""
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
    """check: raises OncewayError when certificate and key cannot be used."""
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
            f"`sudo chmod o-rwx {key}`, and think of a new key",
        )


def _dated(part: str, ends: datetime) -> Finding:
    left = ends - datetime.now(UTC)
    if left < timedelta():
        return wrong(part, f"ended on {ends:%Y-%m-%d}: clients refuse it", _RENEW)
    if left < _SOON:
        return warning(part, f"ends on {ends:%Y-%m-%d}, in {left.days} days", _RENEW)
    return ok(part, f"holds until {ends:%Y-%m-%d}")


_RENEW = "Put a new one in its place, then `sudo systemctl reload onceway-gateway`"


def files(data: Path) -> Iterator[Finding]:
    """The data directory belongs to the services, all of it, and to nobody else."""
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
            f"in {data} these do not belong to {_name(uid)}: {names}",
            "Somebody ran the gateway or the uplink as another user:"
            f" `sudo chown -R {_name(uid)}: {' '.join(map(str, paths))}`",
        )
    if folder.st_mode & stat.S_IWGRP:
        mode = "2750" if is_shared(data) else "750"
        yield wrong(
            part,
            f"others than {_name(folder.st_uid)} may replace or delete what is in {data}",
            f"`sudo chmod {mode} {data}`",
        )
    elif folder.st_mode & stat.S_IRWXO:
        yield warning(
            part, f"everybody on this machine may look into {data}", f"`sudo chmod o-rwx {data}`"
        )
    elif os.geteuid() and not os.access(data, os.W_OK):
        yield unseen(
            part, f"{data} is for {_name(folder.st_uid)}, not for you", "Run the command with sudo"
        )
    elif not foreign:
        yield ok(part, f"{data} belongs to {_name(folder.st_uid)}")


def _foreign(data: Path) -> dict[int, list[Path]]:
    """By the user whose they should be."""
    gateway, uplink = data.stat().st_uid, uplink_owner(data)[0]
    found: dict[int, list[Path]] = {}
    for path in sorted(data.iterdir()):
        owner = uplink if path.name in _OF_UPLINK else gateway
        owners = {gateway, uplink} if _OF_EITHER.fullmatch(path.name) else {owner}
        with suppress(FileNotFoundError):  # some come and go
            if path.stat().st_uid not in owners:
                found.setdefault(owner, []).append(path)
    return found


def credentials(folder: Path) -> Iterator[Finding]:
    """Those of the landing place are not for the gateway. folder: of the configuration."""
    file = folder / FILE
    try:
        found = file.stat()
    except OSError:
        return
    if found.st_mode & (stat.S_IRGRP | stat.S_IROTH) or found.st_uid not in (0, os.geteuid()):
        yield wrong(
            "credentials",
            f"others than root may read {file}",
            f"`sudo chown root: {file} && sudo chmod 600 {file}`, and think of new ones",
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _of(part: str, error: Exception) -> Finding:
    if isinstance(error, OncewayError):
        what = f"{error.where}: {error.what}" if error.where else error.what
        return wrong(part, what, error.hint or "Mend it, then `onceway gateway check-config`")
    return wrong(part, str(error), "Mend it, then `onceway gateway check-config`")
