"""Clients with a commit in progress: the contents of the disk are uncertain, so nothing is answered
or decided about them until the commit is done.
"""

from collections.abc import Callable


class Working:
    def __init__(self) -> None:
        self._commits: dict[str, int] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def __contains__(self, client: str) -> bool:
        return client in self._commits

    def begin(self, client: str) -> None:
        self._commits[client] = self._commits.get(client, 0) + 1

    def finish(self, client: str) -> None:
        """Note the end of a commit. The last one resumes everything that waited."""
        self._commits[client] -= 1
        if not self._commits[client]:
            del self._commits[client]
            for go_on in self._waiting.pop(client, ()):
                go_on()

    def wait(self, client: str, go_on: Callable[[], None]) -> None:
        self._waiting.setdefault(client, []).append(go_on)
