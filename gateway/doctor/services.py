"""Checks of the gateway, the uplink, and the landing place.

In: a configuration, and the state of the running programs. Out: findings. The check of the landing
place writes temporary files there, and removes them.
"""

from collections.abc import Iterator

from gateway.commands.control_client import NotRunning, ask
from gateway.config import Config
from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.errors import NotAllowed, OncewayError
from gateway.system.amounts import amount, stranded, wait
from gateway.uplink.cutter import DAMAGED
from gateway.uplink.landing import without_password
from gateway.uplink.spool import NoSpool, Spool
from gateway.uplink.status import Status, look
from gateway.uplink.try_place import try_place

_A_WEEK_S = 7 * 86_400


def gateway(config: Config) -> Iterator[Finding]:
    try:
        (found,) = ask(config.gateway.data, do="status")
    except NotRunning:
        yield wrong(
            "gateway",
            "it does not run",
            "`sudo systemctl start onceway-gateway`; if it ends again:"
            " `journalctl -u onceway-gateway`",
        )
    except NotAllowed as error:
        yield unseen("gateway", str(error))
    except OncewayError as error:
        yield _failure("gateway", error)
    else:
        problems = [
            row for row in found["problems"] if row["part"] != "site"
        ]  # `site.py` reports problems of the site
        for problem in problems:
            todo = problem.get("todo", _SEE_LOG)
            yield wrong("gateway", f"{problem['part']}: {problem['what']}", todo)
        if not problems:
            yield ok("gateway", f"{found['gateway']}, version {found['version']}, runs")


def _failure(part: str, error: OncewayError) -> Finding:
    where = f"{error.where}: " if error.where else ""
    return wrong(part, f"{where}{error.what}", error.hint or _SEE_LOG)


_SEE_LOG = "`journalctl -u onceway-gateway` shows more"


def uplink(config: Config) -> Iterator[Finding]:
    data = config.gateway.data
    try:
        with Spool(data, to_read=True) as spool:
            state = look(spool, data, config.spool_bytes)
    except NoSpool:
        if config.uplink is not None:
            yield unseen("uplink", "the gateway has not created its database yet")
        return
    except NotAllowed as error:
        yield unseen("uplink", str(error))
        return
    except OncewayError as error:
        yield _failure("uplink", error)
        return
    if config.uplink is None:
        if state.rows:
            text, _, todo = stranded(state.rows, state.bytes).partition(". ")
            yield warning("spool", text, todo)
        return
    yield from _uplink(state)
    file = data / "batches" / DAMAGED
    if state.sent.held and file.exists():
        text = f"damaged rows were set aside, and do not land: {state.sent.held:,}, in {file}"
        yield warning("uplink", text, _HELD)
    if state.rival is not None:
        yield warning("uplink", state.rival["what"], "Give each gateway a name of its own")
    yield from _landing(config, state)


_HELD = (
    "The card may fail: make a backup, then replace the card. When you have read the file, move the"
    " file away"
)


def _uplink(state: Status) -> Iterator[Finding]:
    if state.running is None:
        yield wrong(
            "uplink",
            f"it does not run; {wait(state.rows)}",
            "`sudo systemctl start onceway-uplink`; if it ends again:"
            " `journalctl -u onceway-uplink`",
        )
    elif state.lasts_s is not None and state.lasts_s < _A_WEEK_S:
        yield warning(
            "uplink",
            f"if the uplink stops, the remaining space lasts {state.lasts_s / 86_400:.1f} days",
            "Use a larger card, or set spool.max_bytes higher",
        )
    else:
        yield ok(
            "uplink", f"runs; {wait(state.rows)}, {amount(state.landed, 'batch', 'batches')} landed"
        )


def _landing(config: Config, state: Status) -> Iterator[Finding]:
    settings = config.uplink
    if settings is None:
        return
    part = f"landing place {without_password(settings.landing)}"
    outage = state.outage and f"the uplink cannot land a batch: {state.outage['error']}"
    try:
        way = try_place(settings, state.gateway, state.landed)
    except OncewayError as error:
        yield wrong(part, f"{error.what}; {outage}" if outage else error.what, error.hint or _REACH)
    else:
        if outage:
            yield wrong(part, f"it answers now, and {way.text}; {outage}", _REACH)
        else:
            yield ok(part, f"answers; {way.text}")


_REACH = "Check network, address, folder and credentials: `onceway uplink status`"
