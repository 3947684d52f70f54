"""Numbers with their unit, for people. In: a number and a noun. Out: `1 message`, `21,273
messages`.
"""


def amount(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun. many: the plural, if it is not the noun with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def are(number: int, one: str = "message") -> str:
    """Return the begin of a sentence: `1 message is`, `2 messages are`."""
    return f"{amount(number, one)} {'is' if number == 1 else 'are'}"


def were(number: int, one: str = "message") -> str:
    """Return the begin of a sentence: `1 message was`, `2 messages were`."""
    return f"{amount(number, one)} {'was' if number == 1 else 'were'}"


def wait(number: int, one: str = "message") -> str:
    """Return how many of them wait: `1 message waits`, `2 messages wait`."""
    return f"{amount(number, one)} {'waits' if number == 1 else 'wait'}"


def stranded(rows: int, size: int) -> str:
    """Return a text for messages in a spool without an uplink. size: their bytes."""
    return (
        f"{wait(rows)} ({size:,} bytes), and no [uplink] lands them. Add [uplink], or give them up:"
        " onceway spool discard"
    )
