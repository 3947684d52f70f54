"""Steps: pieces of work on shared state, each done as a whole or not at all.

In: the begin and the end of each step. Out: `unfinished`, the steps that an exception has left in
the middle. After such an exception the state in memory may tell what no commit will ever hold, so
nothing may be committed or acknowledged any more (`README.md`, "Where an exception ends").

An exception in a step does not end the step: the count stays, whoever catches the exception. An
MqttError does end it: it says that a client has broken the protocol, and is raised before anything
shared has changed.
"""

from types import TracebackType

from gateway.mqtt.errors import MqttError


class Step:
    """Use: `with core.step:`. Where each message comes by: `core.step.unfinished += 1` before and
    `-= 1` after the work, which costs less; no MqttError may be raised in between.
    """

    __slots__ = ("error", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Steps that have begun and not ended; not 0 between two turns: one was left in the middle.
        """
        self.error: BaseException | None = None
        """The exception that left one, if that is known."""

    def __enter__(self) -> None:
        self.unfinished += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, MqttError):
            self.unfinished -= 1
        else:
            self.error = self.error or error
