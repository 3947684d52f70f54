"""The rule for names of gateways: one for the configuration, for `onceway ingest trust`, and for
the centre.

A gateway's name is a folder at the landing place, a part of the names of markers there, and a
column of the table. Names that begin with `_` or `.` belong to the landing place itself (`_newest`,
`.incoming`).
"""

LONGEST = 64
"""Characters."""

LONGEST_BYTES = 200
"""In UTF-8: with epoch and number behind it, the name of a marker must fit into 255 bytes."""

OF_FILE_SYSTEMS = ("lost+found", "system volume information", "$recycle.bin")
"""Folders that file systems make by themselves, in lower case."""


def problem(name: str) -> str | None:
    """Return what is wrong with a name, to be read after the name; None if a gateway may have
    it.
    """
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


def is_text(name: str) -> bool:
    """Whether a name can be written in UTF-8. Python reads other bytes of a file name as lone
    surrogates.
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def shown(name: str) -> str:
    """Return a name for people; what cannot be shown is escaped."""
    return name.encode(errors="backslashreplace").decode()
