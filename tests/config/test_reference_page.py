"""gateway/config/REFERENCE.md is up to date with the models, and each example in it is valid."""

from typing import Any

import pytest

from gateway.config import parse
from gateway.config.reference import Entry, Key, entries
from tests.config.reference_page import EXAMPLES, PAGE, example, name, page, value

KEYS = [
    pytest.param(entry, key, id=f"{name(entry)}.{key.name}")
    for entry in entries()
    for key in entry.keys
]
SEVERAL = {name(entry) for entry in entries() if "[[" in entry.header}
TLS = {"certificate": "/etc/onceway/gateway.pem", "key": "/etc/onceway/gateway.key"}
BESIDE: dict[str, dict[str, Any]] = {
    "listener": {"bind": "127.0.0.1:0"},
    "listener.systemd": {"bind": None},
    "listener.tls.client_crl": {"client_ca": "/etc/onceway/clients.pem"},
    "listener.tls.client_required": {"client_ca": "/etc/onceway/clients.pem"},
    "listener.origins": {"type": "websocket"},
    "listener.proxies": {"type": "websocket"},
    "acl": {"users": ["alice"]},
    "quota": {"users": ["alice"], "connections": 10},
    "queue": {"clients": "alice"},
    "bridge": {
        "up": ["sensors/#"],
        "user": "site-1",
        "password_file": "/etc/onceway/cloud.password",
    },
    "bridge.certificate": TLS,
    "bridge.key": TLS,
    "page.certificate": TLS,
    "page.key": TLS,
    "notify": {"mail_server": "smtps://mail.example", "mail_to": ["lena@example.org"]},
}
"""Other keys that the example of a key needs, although the models do not require them."""


def test_the_page_is_that_of_the_models() -> None:
    assert PAGE.read_text() == page(), "run: make docs"


def test_examples_are_of_keys_that_exist_and_differ_from_their_defaults() -> None:
    shown = {f"{name(e)}.{k.name}": k.default for e in entries() for k in e.keys}
    assert {key: shown[key] for key, text in EXAMPLES.items() if text == shown[key]} == {}


@pytest.mark.parametrize(("entry", "key"), KEYS)
def test_each_example_is_a_configuration(entry: Entry, key: Key) -> None:
    table, _, inner = name(entry).partition(".")
    given = {one.name: value(example(entry, one)) for one in entry.keys if one.needed}
    text: dict[str, Any] = given | {key.name: value(example(entry, key))}
    if inner:
        text = {inner: BESIDE.get(f"{name(entry)}.{key.name}", {}) | text}
    text = BESIDE.get(table, {}) | BESIDE.get(f"{table}.{key.name}", {}) | text
    text = {word: one for word, one in text.items() if one is not None}
    gateway = {} if entry.header == "[gateway]" else {"gateway": {"name": "attic"}}
    parse(gateway | {table: [text] if table in SEVERAL else text}, "REFERENCE.md")
