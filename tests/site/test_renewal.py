"""Certificates are renewed before they expire. The tests use issue dates in the past."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.doctor.finding import State
from gateway.doctor.site import _certificate
from gateway.errors import OncewayError
from gateway.site.framing import Kind
from gateway.site.pki import renewal
from gateway.site.pki.authority import authority_of, issued_at, membership
from tests.site.members import Site, as_member, dialled, joined, running, until

YEAR = timedelta(days=365)


def age(monkeypatch: pytest.MonkeyPatch, site: Site, years: float, *names: str) -> None:
    """Issue the certificates of these members again, dated `years` years ago."""
    with monkeypatch.context() as patch:
        then = datetime.now(UTC) - years * YEAR
        patch.setattr("gateway.site.pki.authority._now", lambda: then)
        for name in names:
            site.issue(name)


def years(site: Site, name: str) -> float:
    """Return the number of years for which a member's certificate is still valid."""
    return (membership(site.of(name)).certificate.not_valid_after_utc - datetime.now(UTC)) / YEAR


async def test_certificates_are_renewed_at_half_their_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.site")
    site = Site(tmp_path, "attic", "barn", "cellar")
    age(monkeypatch, site, 5.1, "attic", "barn")
    age(monkeypatch, site, 4.9, "cellar")
    before = {name: membership(site.of(name)) for name in site.addresses}
    async with joined(*map(site.config, site.addresses)) as (_, barn, _):
        assert years(site, "attic") > 9.9, "the first gateway needs nobody"
        await until(lambda: years(site, "barn") > 9.9)
        await until(lambda: barn.net.status()[0]["until"][:4] == str(datetime.now().year + 10))
        assert years(site, "cellar") < 5.2, "it is not due"
        assert not barn.events.count(("left", "attic")), "links stay"
    for name in ("attic", "barn"):
        made = membership(site.of(name))
        assert issued_at(made.certificate) == issued_at(before[name].certificate)
        assert made.key.public_key() == before[name].key.public_key()
    assert sum("certificate is renewed, valid until" in line for line in caplog.messages) == 1
    async with joined(*map(site.config, site.addresses)):
        pass


async def test_first_gateway_renews_a_certificate_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards the first gateway can also invite members whose certificates have expired."""
    site = Site(tmp_path, "attic", "barn")
    age(monkeypatch, site, 11, "attic")
    assert _certificate(site.config("attic")).state is State.WRONG
    assert "restart" in (_certificate(site.config("attic")).todo or "")
    async with joined(*map(site.config, site.addresses)):
        assert years(site, "attic") > 9.9
    assert _certificate(site.config("attic")).state is State.OK


async def test_a_certificate_that_ends_soon_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "attic", "barn")
    age(monkeypatch, site, 9.95, "barn")
    found = _certificate(site.config("barn"))
    remedy = "The first gateway needs Onceway 0.2.1 or later"
    assert (found.state, remedy in (found.todo or "")) == (State.WARNING, True)
    async with running(site.config("barn")) as (barn,):
        assert "its certificate expires on" in barn.net.status()[0]["problem"]
        async with running(site.config("attic")):  # as doctor advises
            await until(lambda: barn.net.status()[0]["problem"] is None)
    assert _certificate(site.config("barn")).state is State.OK


async def test_members_without_the_authority_renew_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    age(monkeypatch, site, 6, "barn", "cellar")
    async with joined(site.config("barn"), site.config("cellar")) as (barn, _):
        await until(lambda: barn.row("cellar")["lag_ms"] is not None)
        assert years(site, "barn") < 5
    found = renewal.renew_own(site.of("barn"))
    assert found is None


async def test_a_certificate_of_another_member_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "attic", "barn", "cellar")
    authority = authority_of(site.of("attic"))
    assert authority is not None
    own = membership(site.of("barn"))
    other = renewal.renewed(site.of("attic"), membership(site.of("cellar")).certificate)
    for data in (b"", b"x", other):
        with pytest.raises(OncewayError, match="it sent"):
            renewal.accept(site.of("barn"), data)
    assert membership(site.of("barn")).certificate == own.certificate


async def test_one_certificate_a_link(tmp_path: Path) -> None:
    """A faulty member asks again and again for a certificate on one link. It gets only one."""
    site = Site(tmp_path, "barn", "attic")
    shown = as_member(site, "attic")
    async with (
        running(site.config("barn")) as (barn,),
        dialled(site.addresses["barn"], shown) as attic,
    ):
        await attic.join()
        await until(lambda: barn.linked("attic"))
        for _ in range(5):
            attic.say(Kind.JOIN)
        assert b"CERTIFICATE" in await attic.hear(Kind.JOIN)
        while (found := await attic.next()) is not None:
            assert found[0] is not Kind.JOIN
