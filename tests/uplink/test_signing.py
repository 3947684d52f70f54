"""Each gateway signs every manifest with its own key, which other accounts cannot read."""

import hashlib
import json
import os
import stat
import threading
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.errors import OncewayError
from gateway.uplink.manifest import Manifest, Origin
from gateway.uplink.signing import FILE, load_or_make


def test_the_first_start_makes_a_key_for_the_service_alone(tmp_path: Path) -> None:
    made = load_or_make(tmp_path)
    status = (tmp_path / FILE).stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == tmp_path.stat().st_uid
    assert load_or_make(tmp_path).public == made.public
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file for another account")
def test_a_key_that_root_makes_belongs_to_the_service(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    load_or_make(tmp_path)
    status = (tmp_path / FILE).stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


def test_concurrent_first_starts_have_the_same_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_or_make(tmp_path).public))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "text", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_damaged_key_is_reported_and_kept(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    with pytest.raises(OncewayError, match="onceway uplink key"):
        load_or_make(tmp_path)
    assert (tmp_path / FILE).read_bytes() == text


def test_a_manifest_has_the_same_bytes_each_time_and_a_signature_of_the_rest(
    tmp_path: Path,
) -> None:
    signer = load_or_make(tmp_path)
    manifest = Manifest(Origin("Dachstübli", "00c0ffee"), 1, 500, 10_211, "ab" * 32)
    text = signer.publish(manifest)
    assert load_or_make(tmp_path).publish(manifest) == text
    fields = json.loads(text)
    signature = b64decode(fields.pop("signature"))
    raw = b64decode(signer.public)
    assert fields.pop("key") == hashlib.sha256(raw).hexdigest()[:16]
    key = Ed25519PublicKey.from_public_bytes(raw)
    # as gateway/uplink/README.md describes it, for other programs that check signatures
    key.verify(signature, b"onceway manifest\n" + json.dumps(fields, ensure_ascii=False).encode())


def test_the_command_prints_the_key_and_the_name(data, onceway, tmp_path: Path) -> None:
    found = onceway("uplink", "key", "--data", data.path)
    assert found.stdout == f"{load_or_make(data.path).public} site-1\n"
    config = tmp_path / "gateway.toml"
    config.write_text(f'[gateway]\nname = "roof west"\ndata = "{data.path}"\n')
    found = json.loads(onceway("uplink", "key", "--config", config, "--json").stdout)
    assert found == {"gateway": "roof west", "key": load_or_make(data.path).public}


def test_a_gateway_that_gets_another_key_goes_on(data, drain, landed, tmp_path: Path) -> None:
    """The file with the gateway's key is deleted between two batches. The second batch lands under
    a new key, and no row lands twice.
    """
    data.add(10)
    drain(data, tmp_path / "landing")
    (data.path / FILE).unlink()
    data.add(10)
    drain(data, tmp_path / "landing")
    assert len(landed(tmp_path / "landing")) == 20


def test_key_of_another_kind_is_reported_and_kept(tmp_path: Path) -> None:
    other = X25519PrivateKey.generate()
    text = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / FILE).write_bytes(text)
    with pytest.raises(OncewayError, match="this is not a key that signs batches"):
        load_or_make(tmp_path)
    assert (tmp_path / FILE).read_bytes() == text


def test_key_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(OncewayError, match="cannot be read or created") as refused:
        load_or_make(tmp_path)
    assert refused.value.where == str(tmp_path / FILE)
    assert "sudo onceway uplink key" in str(refused.value.hint)
