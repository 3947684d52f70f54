"""Bridges to other brokers: their files, and their connections.

In: a configuration, and the status of the running gateway. Out: findings.
"""

import stat
from collections.abc import Iterator
from contextlib import suppress

from gateway.bridge.far import check
from gateway.bridge.status import REMEDIES, BridgeStatus, problems, read
from gateway.commands.control_client import NotRunning, ask
from gateway.config import BridgeSection, Config
from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.errors import OncewayError
from gateway.system.amounts import wait


def bridges(config: Config) -> Iterator[Finding]:
    if not config.bridge:
        return
    states: dict[str, BridgeStatus] = {}
    with suppress(NotRunning, OncewayError):  # `services.gateway` reports that
        (found,) = ask(config.gateway.data, do="status")
        states = {item["name"]: read(item) for item in found["bridges"]}
    for section in config.bridge:
        part = f"bridge {section.name}"
        try:
            check(section)
        except OncewayError as error:
            where = f"{error.where}: " if error.where else ""
            yield wrong(part, f"{where}{error.what}", error.hint or _MEND)
            continue
        yield from _secret(part, section)
        if (state := states.get(section.name)) is None:
            yield unseen(part, "the running gateway does not have this bridge", _RESTART)
        else:
            yield from _state(part, state)


def _secret(part: str, section: BridgeSection) -> Iterator[Finding]:
    for path in filter(None, (section.password_file, section.key)):
        if path.stat().st_mode & stat.S_IROTH:
            yield wrong(
                part,
                f"everybody on this machine may read {path}",
                f"`sudo chmod o-rwx {path}`, and replace the password or key in it",
            )


def _state(part: str, state: BridgeStatus) -> Iterator[Finding]:
    """Yield the findings about a bridge of the running gateway: its connection first, then its
    other problems.
    """
    if state.error is None:
        yield ok(part, f"connected; {wait(state.waiting)}, {state.sent:,} sent")
    for kind, text in problems(state):
        yield (wrong if kind == "bridge" else warning)(part, text, REMEDIES[kind])


_MEND = "Correct the mistake, then run: onceway gateway check-config"
_RESTART = "[[bridge]] takes effect at the next start: `sudo systemctl restart onceway-gateway`"
