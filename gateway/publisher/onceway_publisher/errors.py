"""The errors of a publisher. Each text names the cause, the place and a remedy."""


class PublisherError(Exception):
    """Base class of a publisher's errors."""


class JournalError(PublisherError):
    """The journal cannot be opened or written."""


class JournalLocked(JournalError):
    """Another process has this journal open."""


class JournalFull(PublisherError):
    """The journal was full, and no room became free in time. The message is not accepted."""


class Unreadable(PublisherError):
    """A value, topic or address cannot be used."""


class Refused(PublisherError):
    """The gateway does not let this client in. reason: the reason code of CONNACK."""

    def __init__(self, text: str, reason: int = 0) -> None:
        super().__init__(text)
        self.reason = reason


class NoIdentity(Refused):
    """The gateway ignores the identity of this client's messages, so a message that is sent again
    would be in the table twice.
    """


class StillWaiting(PublisherError, TimeoutError):
    """The gateway has not accepted the message in time. The message stays in the journal."""
