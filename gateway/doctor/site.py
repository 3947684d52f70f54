"""The site: this gateway's certificate, and its links to the other members.

In: a configuration, and the status of the running gateway. Out: findings.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.config import Config
from gateway.config.site_members import unlike
from gateway.doctor.finding import Finding, ok, unseen, warning, wrong
from gateway.errors import OncewayError

_SOON = timedelta(days=90)


def site(config: Config) -> Iterator[Finding]:
    if config.site is None:
        return
    yield _certificate(config)
    if (text := unlike(config)) is not None:
        yield warning("site", text, _LIST)
    members: list[dict[str, Any]] | None = None
    with suppress(NotRunning, OncewayError):  # `services.gateway` reports that
        members = ask(config.gateway.data, do="site")
    rows = {row["name"]: row for row in members or ()}
    own = rows.get(config.gateway.name, {}).get("problem") or ""
    if own.startswith("[site.members]"):
        yield wrong("site", own, _SAME)
    for name in config.site.members:
        if name != config.gateway.name:
            yield _member(name, rows.get(name), members is not None)


def _certificate(config: Config) -> Finding:
    from gateway.site.pki.authority import authority_of, membership  # only where there is a site
    from gateway.site.pki.folder import MEMBER
    from gateway.site.pki.removed import Removed

    part = "site"
    try:
        (config.site_folder / MEMBER).open().close()
        own = membership(config.site_folder, config.gateway.name)
        removed = Removed(config.site_folder, own).covers(own.certificate)
    except FileNotFoundError:
        return wrong(part, "this gateway is not a member of a site yet", _JOIN)
    except PermissionError:
        text = "this account may not look at the certificate"
        return unseen(part, text, "Run the command with sudo")
    except OncewayError as error:
        return wrong(part, str(error), error.hint or _JOIN)
    if removed:
        return wrong(part, "this gateway was removed from its site", _JOIN)
    ends, now = own.certificate.not_valid_after_utc, datetime.now(UTC)
    if own.certificate.not_valid_before_utc > now:
        text = "the certificate is not valid yet, by this machine's clock"
        return wrong(part, text, "See whether the clock is right: `timedatectl`")
    first = authority_of(config.site_folder) is not None
    if ends < now:
        remedy = _RENEW if first else _JOIN
        return wrong(part, f"the certificate expired on {ends:%Y-%m-%d}", remedy)
    if ends - now < _SOON:
        remedy = _RENEW if first else _LINK
        return warning(part, f"the certificate expires on {ends:%Y-%m-%d}", remedy)
    return ok(part, f"a member of site {own.site}, certificate until {ends:%Y-%m-%d}")


def _member(name: str, row: dict[str, Any] | None, running: bool) -> Finding:
    part = f"member {name}"
    if not running:
        return unseen(part, "not known, because the gateway does not answer", _START)
    if row is None:
        return unseen(part, "the running gateway does not know this member", _RESTART)
    if not row["connected"]:
        why = row["problem"] or "nothing was received since the gateway's start"
        return wrong(part, f"silent for {row['since_s']:.0f} s: {why}", _remedy(why, _REACH))
    if (row["problem"] or "").startswith("its clock is"):
        return warning(
            part, row["problem"], "Compare both clocks: run `timedatectl` on both machines"
        )
    if row["problem"]:
        return wrong(part, row["problem"], _remedy(row["problem"], _ONE))
    return ok(part, "connected")


def _remedy(problem: str, other: str) -> str:
    """Return the remedy for a member's problem. other: the remedy for unknown problems."""
    if "pdate Onceway" in problem:
        return _UPDATE
    if "certificate has expired" in problem:
        return _THERE
    return _SAME if "[site" in problem else other


_JOIN = (
    "Run `sudo onceway site invite NAME` on the first gateway, then here"
    " `sudo onceway site join FILE` (see the gateway's README)"
)
_RENEW = (
    "This gateway renews the certificate at its next start:"
    " `sudo systemctl restart onceway-gateway`"
)
_LINK = (
    "The certificate is renewed as soon as this gateway reaches the first gateway. The first"
    " gateway needs Onceway 0.2.1 or later"
)
_LIST = (
    "Write the members of the signed list into the file. [site.members] of the file is used only"
    " without such a list. To change members: `onceway site invite NAME --address`, `site address`"
    " or `site remove`, on the first gateway"
)
_START = "Start this gateway: `sudo systemctl start onceway-gateway`"
_RESTART = "[site] takes effect at the next start: `sudo systemctl restart onceway-gateway`"
_ONE = (
    "The right gateway is at its address in [site.members]; look for another machine with a copy of"
    " its card"
)
_SAME = "Make [site] the same in the configuration of each member, and restart the members"
_THERE = "`sudo onceway doctor` on that machine says how to renew the certificate"
_UPDATE = "Install the newer Onceway on that machine: `sudo apt install ./onceway_NEWER.deb`"
_REACH = (
    "Does the member run, is its address in [site.members] right, can this machine reach that port?"
)
