"""Clients with a commit in progress: the contents of the disk are uncertain, so nothing is answered
or decided about such a client until the commit is done.
"""

from collections.abc import Callable


class Working(dict[str, int]):
    """The number of commits in progress for each client, and the functions to call at their end."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def begin(self, client: str) -> None:
        self[client] = self.get(client, 0) + 1

    def finish(self, client: str) -> None:
        """Note that a commit of a client has ended. If it was the client's last one in progress,
        call the functions that wait for this client.
        """
        self[client] -= 1
        if not self[client]:
            del self[client]
            for go_on in self._waiting.pop(client, ()):
                go_on()

    def wait(self, client: str, go_on: Callable[[], None]) -> None:
        self._waiting.setdefault(client, []).append(go_on)
