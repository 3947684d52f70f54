"""Numbers with their unit, for people. In: a number and a noun. Out: `1 message`, `21,273
messages`.
"""


def amount(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun. one: the noun. many: its plural; "": the noun with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def are(number: int, one: str = "message", size: int | None = None, many: str = "") -> str:
    """Return the beginning of a sentence: `1 message is`, `2 messages (140 bytes) are`."""
    return f"{amount(number, one, many)}{_of(size)} {'is' if number == 1 else 'are'}"


def were(number: int, one: str = "message") -> str:
    """Return the beginning of a sentence: `1 message was`, `2 messages were`."""
    return f"{amount(number, one)} {'was' if number == 1 else 'were'}"


def wait(number: int, one: str = "message", size: int | None = None) -> str:
    """Return a clause: `1 message waits`, `2 messages (140 bytes) wait`."""
    return f"{amount(number, one)}{_of(size)} {'waits' if number == 1 else 'wait'}"


def _of(size: int | None) -> str:
    return "" if size is None else f" ({size:,} bytes)"


def stranded(rows: int, size: int) -> str:
    """Return a sentence about messages in a spool without an uplink. size: their total, in
    bytes.
    """
    return (
        f"{wait(rows, size=size)}, and no [uplink] lands them. Add [uplink], or discard them:"
        " onceway spool discard"
    )
