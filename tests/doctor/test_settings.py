"""Settings that doctor judges: each limit is tested on both sides, and each finding has its
remedy.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.config import Config, parse
from gateway.doctor import settings
from gateway.doctor.finding import Finding, State
from gateway.errors import OncewayError

OK, WARNING, WRONG, UNSEEN = State.OK, State.WARNING, State.WRONG, State.UNSEEN


def chain(folder: Path, *ends: timedelta) -> tuple[Path, Path]:
    """Write a key, and a file with certificates for that key. ends: time until each certificate
    expires. Return both paths.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    blocks = [
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=900))
        .not_valid_after(now + end)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        for end in ends
    ]
    (folder / "cert.pem").write_bytes(b"".join(blocks))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(private)
    (folder / "key.pem").chmod(0o640)
    return folder / "cert.pem", folder / "key.pem"


def of_page(certificate: Path, key: Path) -> list[Finding]:
    page = {"certificate": str(certificate), "key": str(key)}
    return list(settings.tls(parse({"page": page}, "a file")))


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("end", "state", "words"),
    [
        (timedelta(days=30) + MINUTE, OK, "valid until "),
        (timedelta(days=30) - MINUTE, WARNING, "in 29 days"),
        (MINUTE, WARNING, "in 0 days"),
        (-MINUTE, WRONG, "clients refuse it"),
    ],
    ids=str,
)
def test_certificate_is_reported_a_month_before_its_end(
    tmp_path: Path, end: timedelta, state: State, words: str
) -> None:
    (found,) = of_page(*chain(tmp_path, end))
    assert (found.state, words in found.what) == (state, True)
    assert found.part == "certificate of the page 127.0.0.1:8080"
    assert (found.todo is None) == (state == OK)


def test_first_certificate_of_a_chain_that_ends_counts(tmp_path: Path) -> None:
    (found,) = of_page(*chain(tmp_path, timedelta(days=400), timedelta(days=3)))
    assert found.state == WARNING


@pytest.mark.parametrize(("mode", "states"), [(0o640, [OK]), (0o644, [OK, WRONG])])
def test_key_that_all_may_read_is_wrong(tmp_path: Path, mode: int, states: list[State]) -> None:
    files = chain(tmp_path, timedelta(days=400))
    files[1].chmod(mode)
    found = of_page(*files)
    assert [item.state for item in found] == states
    assert all("chmod o-rwx" in (item.todo or "") for item in found[1:])


def test_certificate_that_cannot_be_used_is_wrong_or_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = chain(tmp_path, timedelta(days=400))
    files[0].write_text("no certificate")
    (found,) = of_page(*files)
    assert (found.state, "cert.pem" in found.what) == (WRONG, True)
    (found,) = of_page(tmp_path / "none.pem", files[1])
    assert found.state == WRONG

    def denied(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(settings, "Tls", denied)
    (found,) = of_page(*files)
    assert (found.state, found.todo) == (UNSEEN, "Run the command with sudo")


def test_page_without_a_certificate_and_listener_without_tls_have_none() -> None:
    config = parse({"page": {}, "listener": [{"bind": "127.0.0.1:1883"}]}, "a file")
    assert list(settings.tls(config)) == []
    assert list(settings.tls(Config())) == []


def told(config: Config) -> list[str]:
    return [item.what.partition(":")[0] for item in settings.meaning(config)]


NO_BOARDS, NO_PLACE = "no serial port and no radio is served", "there is no landing place"


def test_gateway_without_boards_or_landing_place_is_a_warning(tmp_path: Path) -> None:
    data = {"gateway": {"data": str(tmp_path)}}
    uplink = {"uplink": {"landing": "file:///landing"}}
    radio = {"lora": [{"port": "/dev/ttyUSB0", "network": 7, "boards": {"lora-1": 1}}]}
    line = {"serial": [{"port": "/dev/ttyACM0"}]}
    assert told(parse(data, "")) == [NO_BOARDS, NO_PLACE]
    assert told(parse(data | uplink, "")) == [NO_BOARDS]
    assert told(parse(data | line, "")) == told(parse(data | radio, "")) == [NO_PLACE]
    assert told(parse(data | line | uplink, "")) == []
    assert {item.part for item in settings.meaning(parse(data, ""))} == {"configuration"}


def test_unreadable_users_and_advice_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse({"serial": [{"port": "/dev/ttyACM0"}], "uplink": {"landing": "file:///l"}}, "")
    monkeypatch.setattr(settings, "advice", lambda _: ["This is odd. Change it. Soon"])

    def broken(_: Path) -> None:
        raise OncewayError("line 3 has no password", "users.toml")

    monkeypatch.setattr(settings, "Users", broken)
    first, second = settings.meaning(config)
    assert (first.state, first.what, first.todo) == (WARNING, "This is odd", "Change it. Soon")
    assert (second.state, second.what) == (WRONG, "users.toml: line 3 has no password")
    assert second.todo == "Correct the mistake, then run: onceway gateway check-config"

    def nowhere(_: Path) -> None:
        raise OncewayError("there are two", hint="Delete one")

    monkeypatch.setattr(settings, "Users", nowhere)
    _, second = settings.meaning(config)
    assert (second.what, second.todo) == ("there are two", "Delete one")


@pytest.mark.parametrize(
    ("mode", "state", "todo"),
    [
        (0o700, OK, None),
        (0o750, OK, None),
        (0o770, WRONG, "chmod 750"),
        (0o720, WRONG, "chmod 750"),
        (0o2770, WRONG, "chmod 2750"),
        (0o751, WARNING, "chmod o-rwx"),
        (0o754, WARNING, "chmod o-rwx"),
    ],
    ids=str,
)
def test_data_directory_is_for_the_services(
    tmp_path: Path, mode: int, state: State, todo: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "is_shared", lambda data: bool(data.stat().st_mode & 0o2000))
    tmp_path.chmod(mode)
    (found,) = settings.files(tmp_path)
    assert (found.state, found.part) == (state, "files")
    assert (todo is None and found.todo is None) or todo in (found.todo or "")


def test_data_directory_of_another_account_is_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    for mine, writable, state in ((0, False, OK), (1000, True, OK), (1000, False, UNSEEN)):
        monkeypatch.setattr(settings.os, "geteuid", lambda mine=mine: mine)
        monkeypatch.setattr(settings.os, "access", lambda *_, may=writable: may)
        (found,) = settings.files(tmp_path)
        assert found.state == state

    def denied(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(settings, "_foreign", denied)
    (found,) = settings.files(tmp_path)
    assert (found.state, found.todo) == (UNSEEN, "Run the command with sudo")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_an_account_without_a_name_are_listed_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o750)
    for name in ("b", "a", "gateway.db-wal", "gateway.db-shm", "x.lock", "lock"):
        (tmp_path / name).touch()
    os.chown(tmp_path, 54321, 54321)
    monkeypatch.setattr(settings, "uplink_owner", lambda _: (0, 0))
    (found,) = settings.files(tmp_path)
    assert found.what.endswith("do not belong to 54321: a, b, lock"), "the uplink has the others"
    assert f"chown -R 54321: {tmp_path / 'a'} {tmp_path / 'b'} {tmp_path / 'lock'}" in str(
        found.todo
    )


@pytest.mark.parametrize(
    ("mode", "owner", "fine"),
    [
        (0o600, 0, True),
        (0o620, 0, True),
        (0o640, 0, False),
        (0o604, 0, False),
        (0o600, 1000, True),
        (0o600, 1001, False),
    ],
    ids=str,
)
def test_credentials_are_for_root_or_this_account(
    tmp_path: Path, mode: int, owner: int, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / settings.FILE
    file.touch()
    file.chmod(mode)
    if os.geteuid() == 0:
        os.chown(file, owner, owner)
    elif owner:
        pytest.skip("only root gives files away")
    monkeypatch.setattr(settings.os, "geteuid", lambda: 1000)
    found = list(settings.credentials(tmp_path))
    assert [item.state for item in found] == [WRONG] * (not fine)
    assert list(settings.credentials(tmp_path / "none")) == []
