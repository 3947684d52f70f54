"""A limit for log lines and repetitions: at most once a minute for each key."""

import asyncio

QUIET_S = 60.0
_KEYS = 64


class Seldom:
    """Keys of the last minute, at most _KEYS of them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def allows(self, key: str) -> bool:
        """Whether the key was not allowed in the last minute, and there are not too many keys."""
        now = asyncio.get_running_loop().time()
        self._since = {old: at for old, at in self._since.items() if now - at < QUIET_S}
        if key in self._since or len(self._since) >= _KEYS:
            return False
        self._since[key] = now
        return True
