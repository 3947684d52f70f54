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
from gateway.system.amounts import amount, are, wait, were


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
            yield from _undelivered(part, state)


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
        return wrong(part, f"{state['error']}; {wait(state['waiting'])}", _REACH)
    if state["dropped"]:
        return warning(
            part,
            f"{were(state['dropped'])} dropped because too many waited",
            "Set max_messages and max_bytes of the bridge higher",
        )
    return ok(part, f"connected; {wait(state['waiting'])}, {state['sent']:,} sent")


def _undelivered(part: str, state: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings about messages that do not arrive, and about refused subscriptions."""
    if state.get("aside") or state.get("aside_lost"):
        lost = f", {state['aside_lost']:,} more were lost" if state["aside_lost"] else ""
        yield warning(part, f"{are(state['aside'])} set aside{lost}", _ASIDE)
    if state.get("unconfirmed"):
        text = f"{were(state['unconfirmed'])} given up at their PUBREL and may be there"
        yield warning(part, text, _LOG)
    if state.get("not_taken"):
        text = f"{amount(state['not_taken'], 'message')} from the other broker cannot be taken here"
        yield warning(part, text, _LOG)
    if state.get("held"):
        yield warning(part, f"{wait(state['held'])} for room here, from the other broker", _LOG)
    if state.get("looped"):
        text = f"{amount(state['looped'], 'message')} came back in a loop of bridges"
        yield warning(part, text, _LOG)
    for item in state.get("lacking", ()):
        yield warning(part, f"the other broker gives no subscription to {item}", _LACKING)


_ASIDE = "See which and why, then discard them or try again: `sudo onceway bridge aside`"
_LOG = "See which and why in the log: `journalctl -u onceway-gateway`"
_LACKING = "Look at `down` of the bridge, and at what its user may read there"
_MEND = "Correct it, then `onceway gateway check-config`"
_RESTART = "[[bridge]] takes effect at the next start: `sudo systemctl restart onceway-gateway`"
_REACH = "Check network, address, user and password: `sudo onceway gateway status`"
