"""Credentials of the landing place, which the gateway must not have.

In: a file of lines NAME=VALUE, such as AWS_ACCESS_KEY_ID=…, that root alone may read:
/etc/onceway/uplink.env, beside the configuration. systemd hands it to the uplink, to no other
service (`LoadCredential=`); by hand, root reads it. Out: the environment of this process, which
what speaks to the landing place looks at. The uplink reads the file again at each connection, since
keys are replaced by newer ones.
"""

import os
import shlex
from pathlib import Path

from gateway.errors import OncewayError

FILE = "uplink.env"
_HANDED_OVER = "CREDENTIALS_DIRECTORY"
_taken: dict[str, str] = {}
"""What the environment has from the file, as of the last look."""


def take(config: Path | None) -> None:
    """config: the configuration that is in force. What the environment has from elsewhere stays.
    Raises OncewayError for a line that says nothing.
    """
    folder = os.environ.get(_HANDED_OVER) or (config and config.parent)
    if not folder:
        return
    file = Path(folder, FILE)
    try:
        text = os.fsdecode(file.read_bytes())
    except OSError:  # there is none, or it is for root
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, found, value = line.strip().partition("=")
        if not found or not name.isidentifier() or "\0" in value:
            raise OncewayError(f"line {number} is not NAME=VALUE", str(file))
        if os.environ.get(name) in (None, _taken.get(name)):
            os.environ[name] = _taken[name] = _unquoted(value)


def _unquoted(value: str) -> str:
    if value[:1] not in ("'", '"'):
        return value
    try:
        return "".join(shlex.split(value))
    except ValueError:  # a quote that does not end is a part of it
        return value
