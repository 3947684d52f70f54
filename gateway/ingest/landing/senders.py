"""The gateways whose batches at a landing place are accepted.

In: feeds, and the trusted gateways (`trust.py`). Out: the feeds of accepted gateways, the reason
why each other feed is held, and manifests whose signature was checked.
"""

import logging

from gateway.ingest.landing.place import Announced
from gateway.ingest.landing.trust import Trust
from gateway.system import gateway_name

log = logging.getLogger("onceway.ingest")


class Senders:
    """Decides which feeds are read. trust: trusted gateways; if None, all gateways are trusted."""

    def __init__(self, trust: Trust | None) -> None:
        self._trust = trust
        self._odd_names: set[str] = set()
        self.untrusted: dict[str, str] = {}
        """Reason why no batch of a feed is accepted, by feed. Set by `trusted`."""

    def refresh(self) -> None:
        """Read the list of trusted gateways again."""
        if self._trust is not None:
            self._trust.refresh()

    def check(self, manifest: Announced) -> Announced:
        """Return the manifest, with a flaw if the batch must not be trusted (`Trust.check`)."""
        return manifest if self._trust is None else self._trust.check(manifest)

    def trusted(self, feeds: list[str]) -> list[str]:
        """Return the feeds of trusted gateways. Log the gateways that are held, if any was not
        logged before.
        """
        gateways = {feed.partition("/")[0] for feed in feeds}
        odd = {gateway for gateway in gateways if self._odd(gateway)}
        for gateway in sorted(odd - self._odd_names):
            log.warning("held: %s: %s", gateway, self._odd(gateway))
        self._odd_names = odd
        if self._trust is not None:
            self._trust.say(gateways - odd)
        self.untrusted = {feed: why for feed in feeds if (why := self.not_trusted(feed))}
        return [feed for feed in feeds if feed not in self.untrusted]

    def not_trusted(self, feed: str) -> str | None:
        """Return the reason why no batch of a feed is accepted; None if its gateway is trusted."""
        gateway = feed.partition("/")[0]
        odd = self._odd(gateway)
        return odd or (self._trust.waits(gateway) if self._trust is not None else None)

    def _odd(self, gateway: str) -> str | None:
        """Return the reason why a gateway with an invalid name is held; None for any other gateway.
        Versions up to 0.2.0 allowed such names, so the gateway is accepted once a key is trusted
        for its name.
        """
        problem = gateway_name.problem(gateway)
        if problem is None or (self._trust is not None and self._trust.has_key(gateway)):
            return None
        return (
            f"a gateway's name {problem}. If a gateway up to version 0.2.0 landed this, run"
            " `onceway uplink key` on that gateway, and `onceway ingest trust --old-names` here"
        )
