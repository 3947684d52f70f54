"""A rate limit, such as for log lines: each key is allowed at most once a minute."""

import asyncio

QUIET_S = 60.0
_KEYS = 64


class Seldom:
    """A limit: each key is allowed once a minute, and at most _KEYS keys in a minute."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def allows(self, key: str) -> bool:
        """Return True at most once a minute for each key. If _KEYS keys were allowed in the last
        minute, return False for every other key.
        """
        now = asyncio.get_running_loop().time()
        self._since = {old: at for old, at in self._since.items() if now - at < QUIET_S}
        if key in self._since or len(self._since) >= _KEYS:
            return False
        self._since[key] = now
        return True
