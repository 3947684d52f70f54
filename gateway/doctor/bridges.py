"""Bridges to other brokers: their files, and their connections.

In: a configuration, and the status of the running gateway. Out: findings.
"""

import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gateway.bridge.far import check
from gateway.commands.control_client import NotRunning, ask
from gateway.config import BridgeSection, Config
from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.errors import OncewayError


def bridges(config: Config) -> Iterator[Finding]:
    if not config.bridge:
        return
    told: dict[str, dict[str, Any]] = {}
    with suppress(NotRunning, OncewayError):  # `services.gateway` reports that
        (found,) = ask(config.gateway.data, do="status")
        told = {item["name"]: item for item in found["bridges"]}
    for section in config.bridge:
        part = f"bridge {section.name}"
        try:
            check(section)
        except OncewayError as error:
            where = f"{error.where}: " if error.where else ""
            yield wrong(part, f"{where}{error.what}", error.hint or _MEND)
            continue
        yield from _secret(part, section)
        state = told.get(section.name)
        yield _connection(part, state)
        if state is not None:
            yield from _never_there(part, state)


def _secret(part: str, section: BridgeSection) -> Iterator[Finding]:
    for path in filter(None, (section.password_file, section.key)):
        if path.stat().st_mode & stat.S_IROTH:
            yield wrong(
                part,
                f"everybody on this machine may read {path}",
                f"`sudo chmod o-rwx {path}`, and choose a new one",
            )


def _connection(part: str, state: dict[str, Any] | None) -> Finding:
    if state is None:
        return unseen(part, "the running gateway does not have this bridge", _RESTART)
    if state["error"] is not None:
        return wrong(part, f"{state['error']}; {state['waiting']:,} messages wait", _REACH)
    if state["dropped"]:
        return warning(
            part,
            f"{state['dropped']:,} messages were dropped because too many waited",
            "Set max_messages and max_bytes of the bridge higher",
        )
    return ok(part, f"connected; {state['waiting']:,} messages wait, {state['sent']:,} were sent")


def _never_there(part: str, state: dict[str, Any]) -> Iterator[Finding]:
    """Yield messages that the other broker can never accept."""
    if state.get("aside") or state.get("aside_lost"):
        lost = f", {state['aside_lost']:,} more were lost" if state["aside_lost"] else ""
        yield warning(part, f"{state['aside']:,} messages are set aside{lost}", _ASIDE)
    if state.get("unconfirmed"):
        text = f"{state['unconfirmed']:,} messages were given up at their PUBREL and may be there"
        yield warning(part, text, _LOG)
    if state.get("not_taken"):
        text = f"{state['not_taken']:,} messages from the other broker cannot be taken here"
        yield warning(part, text, _LOG)
    if state.get("held"):
        yield warning(part, f"{state['held']:,} messages from the other broker wait for room", _LOG)
    if state.get("looped"):
        yield warning(part, f"{state['looped']:,} messages came back in a loop of bridges", _LOG)
    for item in state.get("lacking", ()):
        yield warning(part, f"the other broker gives no subscription to {item}", _LACKING)


_ASIDE = "See which and why, then discard them or try again: `sudo onceway bridge aside`"
_LOG = "See which and why in the log: `journalctl -u onceway-gateway`"
_LACKING = "Look at `down` of the bridge, and at what its user may read there"
_MEND = "Correct it, then `onceway gateway check-config`"
_RESTART = "[[bridge]] takes effect at the next start: `sudo systemctl restart onceway-gateway`"
_REACH = "Check network, address, user and password: `sudo onceway gateway status`"
