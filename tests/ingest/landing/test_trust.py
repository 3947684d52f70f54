"""Trust: batches that a trusted gateway has signed get into the table. Others are refused, and the
log names their gateways.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.ingest.landing.keys import Keys, change, keys_url, load, parse, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Announced, Landing, parse_manifest
from gateway.ingest.landing.trust import Trust, say_how
from gateway.uplink.manifest import Manifest, Origin
from gateway.uplink.signing import Signer, load_or_make
from tests.ingest.batches import EPOCH, land, row

A, B = (f"{gateway}/{EPOCH}" for gateway in "ab")
ALL = 10**9
MANIFEST = Manifest(Origin("a", EPOCH), 7, 500, 10_211, "ab" * 32)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return made(tmp_path, "a")


def made(tmp_path: Path, gateway: str) -> Signer:
    folder = tmp_path / "data" / gateway
    folder.mkdir(parents=True, exist_ok=True)
    return load_or_make(folder)


def trust(keys: Keys, demanded: bool = True) -> Trust:
    found = Trust("unused", demanded)
    found.use(keys)
    return found


def refused(keys: Keys, text: bytes, gateway: str = "a", demanded: bool = True) -> str | None:
    """Return the reason for which a manifest is refused as batch 7 of a gateway, or None. demanded:
    signatures are required.
    """
    announced = parse_manifest(text, f"{gateway}/{EPOCH}", 7)
    return trust(keys, demanded).check(announced).flaw


def test_a_signed_manifest_is_taken_and_says_all_that_an_unsigned_one_says(signer: Signer) -> None:
    keys = Keys({"a": [signer.public]})
    assert refused(keys, signer.publish(MANIFEST)) is None
    announced = parse_manifest(signer.publish(MANIFEST), A, 7)
    assert replace(announced, signature=None) == parse_manifest(MANIFEST.to_json(), A, 7)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"rows": 500', b'"rows": 501'),
        (b'"bytes": 10211', b'"bytes": 10212'),
        (b'"sha256": "ab', b'"sha256": "ac'),
    ],
)
def test_a_changed_manifest_is_refused(signer: Signer, old: bytes, new: bytes) -> None:
    text = signer.publish(MANIFEST)
    assert old in text
    why = refused(Keys({"a": [signer.public]}), text.replace(old, new))
    assert why == ("not to be trusted: its signature is wrong: the manifest was changed")


def test_batch_moved_to_another_number_or_epoch_is_refused(signer: Signer) -> None:
    keys = Keys({"a": [signer.public]})
    for changed in (replace(MANIFEST, number=8), replace(MANIFEST, origin=Origin("a", "0" * 8))):
        # its number and epoch are changed to match its new place, but its signature is kept
        text = signer.publish(changed)
        text = text.replace(b'"number": 8', b'"number": 7').replace(b"0" * 8, EPOCH.encode())
        assert "signature is wrong" in str(refused(keys, text))


def test_a_signature_of_another_gateway_is_refused_by_its_name(
    tmp_path: Path, signer: Signer
) -> None:
    other = made(tmp_path, "b")
    keys = Keys({"a": [signer.public], "b": [other.public]})
    assert "which is that of the gateway b" in str(refused(keys, other.publish(MANIFEST)))
    stranger = made(tmp_path, "stranger")
    assert "which is not known here" in str(refused(keys, stranger.publish(MANIFEST)))


def test_two_names_may_have_one_key_after_a_gateway_was_renamed(signer: Signer) -> None:
    keys = Keys({"a": [signer.public], "b": [signer.public]})
    assert refused(keys, signer.publish(MANIFEST)) is None
    renamed = replace(MANIFEST, origin=Origin("b", EPOCH))
    assert refused(keys, signer.publish(renamed), "b") is None
    assert "names another batch" in str(refused(keys, signer.publish(MANIFEST), "b"))


@pytest.mark.parametrize("signature", [None, "", "AAAA", "no base64!", "é", 7, "A" * 4000])
def test_malformed_signature_is_refused_for_every_table(signer: Signer, signature: object) -> None:
    announced = parse_manifest(MANIFEST.to_json(), A, 7)
    text = signer.publish(MANIFEST)
    if signature is not None:
        fields = json.loads(text) | {"signature": signature}
        announced = parse_manifest(json.dumps(fields).encode(), A, 7)
    for demanded in (True, False):
        checked = trust(Keys({"a": [signer.public]}), demanded).check(announced)
        assert "not to be trusted" in str(checked.flaw)


def test_batches_from_before_a_gateway_signed_are_taken_up_to_a_number(signer: Signer) -> None:
    keys = Keys({"a": [signer.public]}, until={A: 7})
    assert refused(keys, MANIFEST.to_json()) is None
    keys.until[A] = 6
    assert "is not signed" in str(refused(keys, MANIFEST.to_json()))


def test_a_gateway_without_a_key_waits_and_another_one_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signer: Signer
) -> None:
    landing = tmp_path / "landing"
    land(landing, "a", 1, [row("dev", 1)], signer=signer)
    land(landing, "b", 1, [row("dev", 2)])
    url = str(tmp_path / "keys.json")
    save(url, Keys({"a": [signer.public]}))
    feeds = Feeds(Landing(str(landing)), trust=Trust(url, True))
    with caplog.at_level(logging.WARNING):
        assert feeds.advance({}, ALL) == {A: 1}
        assert feeds.advance({}, ALL) == {A: 1}
    (line,) = [one.getMessage() for one in caplog.records if "held" in one.getMessage()]
    assert "1 gateway is not trusted: b." in line
    assert "onceway ingest trust" in line
    save(url, Keys({"a": [signer.public]}, unsigned=True))  # changed while the ingest runs
    assert feeds.advance({}, ALL) == {A: 1, B: 1}


def test_a_batch_that_was_planned_and_is_not_trusted_any_more_is_refused(
    tmp_path: Path, signer: Signer
) -> None:
    """After a crash, Spark repeats the planned micro-batch before it asks for new offsets."""
    land(tmp_path / "landing", "a", 1, [row("dev", 1)], signer=signer)
    url = str(tmp_path / "keys.json")
    save(url, Keys({"a": [signer.public]}))
    landing = Landing(str(tmp_path / "landing"))
    (one,) = Feeds(landing, trust=Trust(url, True)).between({}, {A: 1})
    assert one.flaw is None
    save(url, Keys())
    (one,) = Feeds(landing, trust=Trust(url, True)).between({}, {A: 1})
    assert "its key is not trusted" in str(one.flaw)


def test_table_older_than_signatures_continues_with_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "keys.json")
    say_how(url, demanded=True)
    assert not caplog.records
    say_how(url, demanded=False)
    assert "this table is older than signatures" in caplog.text
    assert refused(Keys(), MANIFEST.to_json(), demanded=False) is None
    assert refused(Keys(unsigned=False), MANIFEST.to_json(), demanded=False) is not None


def test_a_damaged_file_of_keys_opens_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signer: Signer
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b"{")
    fresh = Trust(str(path), demanded=False)
    fresh.refresh()
    assert fresh.waits("a")
    save(str(path), Keys({"a": [signer.public]}))
    fresh.refresh()
    assert not fresh.waits("a")
    path.write_bytes(b'{"schema": 2}')
    fresh.refresh()
    fresh.refresh()
    assert not fresh.waits("a")
    assert len([one for one in caplog.records if "not a file of trusted keys" in one.message]) == 2
    with pytest.raises(OncewayError, match="onceway ingest trust"):
        load(str(path))


def test_the_command_adds_forgets_and_allows(tmp_path: Path, signer: Signer) -> None:
    keys = Keys()
    assert not change(keys, [])
    assert change(keys, [f"{signer.public} roof west\n", "\n"], until=[f"a/{EPOCH}:12"])
    assert change(keys, [f"{signer.public} roof west"], unsigned=True)
    assert keys == Keys({"roof west": [signer.public]}, {f"a/{EPOCH}": 12}, True)
    assert parse(keys.to_json()) == keys
    assert signer.public in keys.text()
    assert change(keys, [], distrust=["roof west"])
    assert keys.keys == {}


@pytest.mark.parametrize(
    ("lines", "more", "says"),
    [
        (["c2hvcnQ= a"], {}, "no public key"),
        (["a"], {}, "no public key"),
        ([], {"distrust": ["a"]}, "no key of this gateway"),
        ([], {"until": ["a:7"]}, "not GATEWAY/EPOCH:NUMBER"),
    ],
)
def test_impossible_trust_command_is_reported(
    lines: list[str], more: dict[str, list[str]], says: str
) -> None:
    with pytest.raises(OncewayError, match=says):
        change(Keys(), lines, **more)


def test_a_key_without_a_gateway_is_no_key(signer: Signer) -> None:
    with pytest.raises(OncewayError, match="not a valid gateway name"):
        change(Keys(), [signer.public])


def test_the_file_stands_beside_the_table() -> None:
    assert keys_url("/srv/lake/publications/") == "/srv/lake/publications_trusted.json"
    assert keys_url("s3a://lake/publications") == "s3a://lake/publications_trusted.json"


def test_keys_are_kept_where_the_table_is(signer: Signer) -> None:
    url = keys_url("memory://lake/publications")
    assert load(url) == Keys()
    save(url, Keys({"a": [signer.public]}))
    assert load(url) == Keys({"a": [signer.public]})


def test_an_announced_batch_keeps_its_flaw(signer: Signer) -> None:
    flawed = Announced(A, 7, flaw="the manifest is gone")
    assert trust(Keys({"a": [signer.public]})).check(flawed) == flawed


@pytest.mark.parametrize("gateway", ["", "a/b"])
def test_a_file_of_keys_with_an_impossible_name_is_refused(
    tmp_path: Path, signer: Signer, gateway: str
) -> None:
    path = tmp_path / "keys.json"
    save(str(path), Keys({gateway: [signer.public]}))
    with pytest.raises(OncewayError, match="this is not a file of trusted keys") as raised:
        load(str(path))
    assert repr(gateway) in str(raised.value)


@pytest.mark.parametrize("keys", [b'{"a": 5}', b'{"a": "' + b"A" * 44 + b'"}', b"[]", b"5"])
def test_keys_of_another_shape_are_refused(keys: bytes) -> None:
    with pytest.raises(ValueError, match=r"Error: |no public key"):
        parse(b'{"schema": 1, "unsigned": null, "until": {}, "keys": ' + keys + b"}")


def test_keys_stay_in_force_while_their_file_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, signer: Signer
) -> None:
    path = tmp_path / "keys.json"
    save(str(path), Keys({"a": [signer.public]}))
    known = Trust(str(path), True)
    known.refresh()
    path.unlink()
    path.mkdir()
    for _ in range(2):
        known.refresh()
    (line,) = caplog.messages
    assert f"{path}: the trusted keys cannot be read: " in line
    assert known.waits("a") is None
    assert known.waits("b") is not None
    fresh = Trust(str(path), True)
    fresh.refresh()
    assert "the trusted keys cannot be read" in str(fresh.waits("a"))
