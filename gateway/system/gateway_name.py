"""The rule for names of gateways: one rule for the configuration, for `onceway ingest trust`, and
for the centre.

A gateway's name is the name of a folder at the landing place, a part of the names of markers there,
and a value in a column of the table. Names that begin with `_` or `.` belong to the landing place
itself (`_newest`, `.incoming`).
"""

import unicodedata

LONGEST = 64
"""Longest name, in characters."""

LONGEST_BYTES = 200
"""Longest name, in bytes of UTF-8. The name of a marker, which also has epoch and number, must fit
into 255 bytes.
"""

OF_FILE_SYSTEMS = ("lost+found", "system volume information", "$recycle.bin")
"""Folders that file systems create by themselves, in lower case."""

OF_FILE_SERVERS = frozenset(
    [
        *("#recycle", "#snapshot", "@eadir", "@tmp", "@sharebin", "@sharesnap"),  # Synology
        *("@recycle", "@recently-snapshot", "network recycle bin"),  # QNAP
        *("~snapshot", "trashbox", "recycler", "recycle bin", "network trash folder"),
        *("temporary items", "@snapshots", "lost+dir"),
    ]
)
"""Folders that file servers create by themselves, in lower case. Names that begin with a dot are
not listed. A gateway may have a listed name. But if a folder with a listed name is unreadable, it
counts as the file server's folder, not as a gateway's.
"""


_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"
}
"""Device names of Windows, in lower case. Windows reserves them with any extension."""


def problem(name: str) -> str | None:
    """Return the fault of a name, as words that follow the name, or None if it is allowed."""
    if not name:
        return "must have at least one character"
    if not is_text(name):
        return "must be text in UTF-8"
    if set(name) & set("/\\?") or name in (".", "..") or not name.isprintable():
        return "must be usable as a folder name anywhere: printable, without '/', '\\' and '?'"
    if name.startswith(("_", ".")):
        return "must not begin with '_' or '.': such names belong to the landing place itself"
    if name != name.strip():
        return "must not begin or end with a space"
    if name.casefold() in OF_FILE_SYSTEMS:
        return "must not be the name of a folder that file systems make by themselves"
    if len(name) > LONGEST or len(name.encode()) > LONGEST_BYTES:
        return f"must have at most {LONGEST} characters, and {LONGEST_BYTES} bytes in UTF-8"
    return None


def caution(name: str) -> str | None:
    """Return a reason why no new gateway should get this permitted name, in words that follow the
    name; None if there is no reason.
    """
    where = "SMB and FAT, to which the landing place may be moved one day"
    if found := "".join(sorted(set(name) & set('<>:"|*'))):
        return f"has characters that no folder name may have on {where}: {found}"
    if name.endswith("."):
        return f"ends with a dot, which is left out on {where}"
    if name.partition(".")[0].strip().casefold() in _DEVICES:
        return f"is the name of a device, not of a folder, on {where}"
    if name != unicodedata.normalize("NFC", name):
        return "is not in Unicode's form NFC, so other systems may change its bytes"
    return None


def is_of_a_file_server(name: str) -> bool:
    """Return whether an unreadable folder with this name most likely belongs to the file server."""
    return name.startswith(".") or name.casefold() in OF_FILE_SERVERS


def is_text(name: str) -> bool:
    """Return whether a name can be encoded in UTF-8. In Python, bytes of a file name that are not
    UTF-8 are lone surrogates.
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def shown(text: str) -> str:
    """Return text for people, in one line that any output can encode. Characters that cannot be
    printed are escaped: surrogates, line feeds and other control characters.
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
