"""Certificates, invitations and removals, without a network: valid ones are accepted, others are
refused.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.pki import folder as files
from gateway.site.pki import invitation as invitations
from gateway.site.pki.authority import (
    Authority,
    authority_of,
    found,
    issued_at,
    key_pem,
    membership,
    name_in,
    removal_from_json,
    request,
)
from gateway.site.pki.invitation import Invitation, answer, invite, prove, read
from gateway.site.pki.removed import MOST, Removed, from_values
from gateway.site.pki.removed import read as read_removed
from tests.site.members import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "attic", "barn")


def the_authority(site: Site) -> Authority:
    found = authority_of(site.of("attic"))
    assert found is not None
    return found


def invited(site: Site, name: str = "barn", hours: int = 1) -> Invitation:
    settings = site.config("attic").site
    assert settings is not None
    return invite(site.of("attic"), settings, "attic", name, hours)


def asked(site: Site, data: bytes) -> dict[str, Any]:
    """Return the authority's answer, as the joining machine gets it."""
    told, line = answer(site.of("attic"), site.addresses, data)
    assert "BEGIN" not in line
    return dict(json.loads(told))


KEY = Ed25519PrivateKey.generate()


def wanted(invitation: Invitation, key: Ed25519PrivateKey = KEY, name: str = "barn") -> bytes:
    return prove(invitation, request(name, key))


def test_a_site_is_made_once_and_a_call_that_was_killed_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "attic").mkdir()
    folder = tmp_path / "attic" / "site"
    made = found(folder, "attic")
    with pytest.raises(OncewayError, match="is a member of site"):
        found(folder, "attic")
    (folder / files.MEMBER).unlink()  # as if the process had been killed before it wrote this file
    assert found(folder, "attic").site == made.site
    with pytest.raises(OncewayError, match="no such folder"):
        found(tmp_path / "nowhere" / "site", "attic")


def test_only_the_account_of_the_gateway_may_read_the_files(site: Site) -> None:
    invited(site)
    folder = site.of("attic")
    modes = {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert set(modes.values()) == {0o600, 0o700}
    assert {path for path in modes if modes[path] == 0o700} == {folder / "invitations"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(folder.rglob(".*")), "nothing unfinished is left"


def test_a_certificate_says_the_name_and_the_time(site: Site) -> None:
    before = int(time.time())
    certificate = the_authority(site).issue("barn", KEY.public_key())
    assert name_in(certificate) == "barn"
    assert before <= issued_at(certificate) <= time.time()
    later = the_authority(site).issue("barn", KEY.public_key(), after=before + 1000)
    assert issued_at(later) == before + 1001, "whatever the clock says"
    certificate.verify_directly_issued_by(the_authority(site).certificate)


def test_a_machine_whose_clock_shows_1970_dates_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(1970, 1, 1, tzinfo=tz)

    monkeypatch.setattr("gateway.site.pki.authority.datetime", Stopped)
    with pytest.raises(OncewayError, match="clock shows 1970-01-01"):
        found(tmp_path / "site", "attic")


def test_an_invitation_brings_a_certificate_to_one_key(site: Site) -> None:
    data = wanted(invited(site))
    told = asked(site, data)
    certificate = x509.load_pem_x509_certificate(told["certificate"].encode())
    assert name_in(certificate) == "barn"
    assert certificate.public_key() == KEY.public_key()
    assert told["members"] == site.addresses
    assert asked(site, data) == told, "who was switched off before the answer asks again"


def test_an_answer_says_whether_the_name_was_in_the_site_before(site: Site) -> None:
    data = wanted(invited(site))
    for _ in range(2):
        assert not asked(site, data)["again"], "the same request, in whatever state it was cut"
    assert asked(site, wanted(invited(site)))["again"]


def test_an_invitation_is_used_once(site: Site) -> None:
    invitation = invited(site)
    assert asked(site, wanted(invitation))["certificate"]
    told = asked(site, wanted(invitation, Ed25519PrivateKey.generate()))
    assert told["certificate"] is None
    assert "was used at" in told["refused"]
    assert "remove the member" in told["refused"]


@pytest.mark.parametrize("step", ["spent", "left over"])
def test_interrupted_invitation_gives_no_second_key_a_certificate(
    site: Site, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """If the process is killed before it marks the invitation as used, the first key has no
    certificate, and another key may get one. If it is killed later, only the first key gets one.
    """
    invitation, first = invited(site), Ed25519PrivateKey.generate()

    def cut(path: Path, *_: bytes) -> None:
        if step == "left over" or path.suffix == ".spent":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace" if step == "spent" else "remove", cut)
        if step == "spent":  # the file about older certificates is written earlier
            patch.setattr(Removed, "write", lambda removed: None)
        with pytest.raises(KeyboardInterrupt):
            asked(site, wanted(invitation, first))
    second = asked(site, wanted(invitation))
    again = asked(site, wanted(invitation, first))
    assert bool(second["certificate"]) == (step == "spent")
    assert bool(again["certificate"]) == (step == "left over")


def test_an_invitation_that_has_ended_was_altered_or_withdrawn(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation = invited(site)
    altered = invitation.model_copy(update={"secret": "0" * 64})
    assert "was altered" in asked(site, wanted(altered))["refused"]
    stranger = wanted(invitation, name="cellar")
    refused = "the invitation is for 'barn', but the request has another name"
    assert asked(site, stranger)["refused"] == refused
    unknown = invitation.model_copy(update={"id": "0" * 16})
    assert "not known here" in asked(site, wanted(unknown))["refused"]
    newer = invited(site)
    assert "not known here" in asked(site, wanted(invitation))["refused"]
    with monkeypatch.context() as patch:
        later = datetime.now(UTC) + timedelta(hours=2)

        class Later(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return later

        patch.setattr("gateway.site.pki.invitation.datetime", Later)
        assert "the invitation expired at" in asked(site, wanted(newer))["refused"]
    assert invitations.withdraw(site.of("attic"), "barn")
    assert not invitations.withdraw(site.of("attic"), "barn")
    assert "not known here" in asked(site, wanted(newer))["refused"]


def test_a_request_is_checked_like_anything_from_outside(site: Site) -> None:
    good = json.loads(wanted(invited(site)))
    for data in (
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"x" * 100_000,
        json.dumps(good | {"more": 1}).encode(),
    ):
        assert asked(site, data)["refused"]
    for change in ({"id": "../../member"}, {"csr": "none"}, {"mac": ""}, {"csr": 7}):
        assert asked(site, json.dumps(good | change).encode())["refused"]
    told, _ = answer(site.of("barn"), site.addresses, json.dumps(good).encode())
    assert "does not hold the site's certificate authority" in json.loads(told)["refused"]


def test_a_request_has_to_prove_its_key(site: Site) -> None:
    invitation = invited(site)
    csr = x509.load_pem_x509_csr(request("barn", KEY))
    signed = csr.public_bytes(Encoding.DER)
    damaged = x509.load_der_x509_csr(signed[:-1] + bytes([signed[-1] ^ 1]))
    pem = damaged.public_bytes(Encoding.PEM)
    refused = asked(site, prove(invitation, pem))["refused"]
    assert refused == "the request does not prove that its sender has the key"


def test_a_new_certificate_ends_the_older_ones_of_that_name(site: Site) -> None:
    old, new = (
        x509.load_pem_x509_certificate(asked(site, wanted(invited(site)))["certificate"].encode())
        for _ in range(2)  # both in the same second
    )
    removed = Removed(site.of("attic"), membership(site.of("attic")))
    assert removed.covers(old)
    assert not removed.covers(new)


def test_invitation_needs_a_known_member_and_the_authority(site: Site) -> None:
    with pytest.raises(OncewayError, match=r"\[site.members\] has no 'cellar'"):
        invited(site, "cellar")
    with pytest.raises(OncewayError, match="this gateway itself"):
        invited(site, "attic")
    settings = site.config("barn").site
    assert settings is not None
    with pytest.raises(OncewayError, match="authority is on another gateway"):
        invite(site.of("barn"), settings, "barn", "attic", 1)


def test_invalid_invitation_file_is_refused(site: Site, tmp_path: Path) -> None:
    text = invited(site).model_dump_json()
    file = tmp_path / "file"
    file.write_text(text)
    assert read(file).name == "barn"
    for changed in ("", "{}", text[:-2], text.replace('"secret":"', '"secret":"x'), text * 100):
        file.write_text(changed)
        with pytest.raises(OncewayError, match="altered") as caught:
            read(file)
        assert json.loads(text)["secret"] not in str(caught.value)
    with pytest.raises(OncewayError, match="cannot be read"):
        read(tmp_path / "nowhere")


def test_removals_agree_in_any_order(site: Site) -> None:
    authority, own = the_authority(site), membership(site.of("barn"))
    words = [authority.remove("barn", until) for until in (300, 100, 200)]
    kept = Removed(site.of("barn"), own)
    for word in words:
        kept.heard([word])
    assert kept.until("barn") == 300
    assert not kept.heard(words), "nothing takes a removal back"
    kept.save()
    again = Removed(site.of("barn"), own)
    assert again.until("barn") == 300
    assert again.to_json() == kept.to_json()
    assert again.until("attic") == 0


def test_concurrent_writers_lose_nothing(site: Site) -> None:
    authority, own = the_authority(site), membership(site.of("attic"))
    service, command = (Removed(site.of("attic"), own) for _ in range(2))
    service.heard([authority.remove("barn", 100)])
    command.heard([authority.remove("cellar", 100)])
    command.save()
    service.save()
    command.refresh()
    assert command.until("barn") == command.until("cellar") == 100
    assert {item.name for item in service.news()} == {"barn", "cellar"}
    assert service.news() == []


def test_unsigned_removal_is_refused(site: Site, tmp_path: Path) -> None:
    other = the_authority(Site(tmp_path / "other", "attic"))
    kept = Removed(site.of("barn"), membership(site.of("barn")))
    word = the_authority(site).remove("attic", 100).to_json()
    for forged in (
        other.remove("attic", 100).to_json(),
        word | {"until": 101},
        word | {"name": "x"},
    ):
        with pytest.raises(SiteError, match="did not say"):
            kept.heard([removal_from_json(forged)])
    for wrong in ({}, [], 1, word | {"signature": "?"}, word | {"until": "1"}, word | {"more": 1}):
        with pytest.raises(SiteError, match="not a valid statement"):
            removal_from_json(wrong)
    for data in (b"", b"\xff", b"{}", b"[" * 100_000, b"[1]"):
        with pytest.raises(SiteError):
            read_removed(data)
    with pytest.raises(SiteError, match="is not a list of removed members"):
        from_values([word] * (MOST + 1))
    many = [the_authority(site).remove(f"m{number}", 1) for number in range(MOST + 1)]
    with pytest.raises(SiteError, match=f"more than {MOST}"):
        kept.heard(many)
    assert kept.to_json() == []


@pytest.mark.parametrize("name", [files.MEMBER, files.AUTHORITY])
def test_a_damaged_file_is_named(site: Site, name: str) -> None:
    path = site.of("attic") / name
    whole = path.read_bytes()
    other = Ed25519PrivateKey.generate()
    key_end = whole.index(b"-----BEGIN CERTIFICATE")
    for data in (b"", whole[: len(whole) // 2], key_pem(other) + whole[key_end:], whole * 2):
        path.write_bytes(data)
        with pytest.raises(OncewayError, match="damaged") as caught:
            (membership if name == files.MEMBER else authority_of)(site.of("attic"))
        assert str(path) in str(caught.value)
