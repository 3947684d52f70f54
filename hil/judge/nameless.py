"""Rows of clients that give no identity. The gateway numbers them itself: at the landing place and
in the table their device is `@GATEWAY`, their incarnation the epoch, and their sequence counts such
rows. Only the column `client` names the publisher. In: rows at each hop. Out: each row is assigned
to the publication with its topic and payload, which no two messages of a bench share. If there is
no such publication, the row keeps its own identity.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from hil.judge.publication import Key, Sighting

MARK = "@"
Place = tuple[str, int]


@dataclass(slots=True)
class Nameless:
    """The rows without an identity. clients: names of the clients without an identity."""

    clients: set[str] = field(default_factory=set)
    _rows: list[tuple[str, dict[str, Any], Sighting]] = field(default_factory=list)
    _others: list[tuple[str, dict[str, Any], Sighting]] = field(default_factory=list)
    """The gateway's own rows, which it numbers in one series with the rows without identity."""

    def keeps(self, hop: str, data: dict[str, Any], row: Sighting) -> bool:
        """Add the row if its publisher gave no identity. Return whether the row was added."""
        device = data["device"]
        if device is None or str(device).startswith(MARK):
            self._rows.append((hop, data, row))
            return True
        return False

    def count(self, hop: str, data: dict[str, Any], row: Sighting) -> None:
        """Add a row that the gateway itself has published."""
        self._others.append((hop, data, row))

    def give(self, ways: MutableMapping[Key, dict[str, list[Sighting]]]) -> None:
        """Assign each row to its publication. Call this after all rows were added."""
        publications = {
            (board.columns.get("topic"), board.payload): key
            for key, way in list(ways.items())
            if key.device in self.clients
            for board in way["board"]
        }
        for hop, data, row in self._rows:
            own = Key(str(data["device"] or ""), data["incarnation"] or 0, _number(data))
            ways[publications.get((row.columns.get("topic"), row.payload), own)][hop].append(row)

    def wrong(self) -> Iterator[str]:
        """Yield a sentence for each mistake in the identities that a gateway has given: its name,
        the epoch, and numbers from 1 in the order of the store.
        """
        if not self.clients:  # rows in a fault's copy of a batch keep the old epoch
            return
        numbers: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for hop, data, row in self._rows + self._others:
            gateway, _, epoch = row.origin.partition("/")
            if hop == "spool":
                continue
            if (data["device"], data["incarnation"]) != (MARK + gateway, int(epoch, 16)):
                yield (
                    f"a row without identity of {row.origin} has the device {data['device']}"
                    f" and the incarnation {data['incarnation']}"
                )
            numbers[hop, row.origin][row.position] = data["sequence"]
        for (hop, origin), of in numbers.items():
            found = [of[position] for position in sorted(of)]
            if found != list(range(1, len(found) + 1)):
                yield f"rows without identity of {origin} are not numbered 1, 2, … at hop `{hop}`"


def _number(data: Mapping[str, Any]) -> int:
    return int(data["sequence"] if data["device"] else data["position"])
