"""Credentials of the landing place, which the gateway's process must not have.

In: a file of lines NAME=VALUE, such as AWS_ACCESS_KEY_ID=…, readable only by root:
/etc/onceway/uplink.env, beside the configuration. systemd passes it only to the uplink
(`LoadCredential=`). If root starts the uplink by hand, the uplink reads the file itself. Out:
variables in the environment of this process, which the clients of landing places use. The uplink
reads the file again at each connection, because keys get replaced.
"""

import os
import shlex
from pathlib import Path

from gateway.errors import OncewayError

FILE = "uplink.env"
_HANDED_OVER = "CREDENTIALS_DIRECTORY"
_from_file: dict[str, str] = {}
"""Variables that `take` has put into the environment, with their values."""


def take(config: Path | None) -> None:
    """Put the credentials in the file `uplink.env` into the environment. The file is in the folder
    of systemd's credentials if there is one, otherwise beside the configuration `config`. A
    variable that another source has set keeps its value. Raises OncewayError for an invalid line.
    """
    folder = os.environ.get(_HANDED_OVER) or (config and config.parent)
    if not folder:
        return
    file = Path(folder, FILE)
    try:
        text = os.fsdecode(file.read_bytes())
    except OSError:  # missing, or readable only by root
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, found, value = line.strip().partition("=")
        if not found or not name.isidentifier() or "\0" in value:
            raise OncewayError(f"line {number} is not NAME=VALUE", str(file))
        if os.environ.get(name) in (None, _from_file.get(name)):
            os.environ[name] = _from_file[name] = _unquoted(value)


def _unquoted(value: str) -> str:
    if value[:1] not in ("'", '"'):
        return value
    try:
        return "".join(shlex.split(value))
    except ValueError:  # an unclosed quote belongs to the value
        return value
