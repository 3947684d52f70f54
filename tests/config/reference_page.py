"""Write gateway/config/REFERENCE.md, the page of all configuration keys (`python -m
tests.config.reference_page`, part of `make docs`).

In: the models of the sections, and EXAMPLES for keys whose default value shows too little. Out: the
page, with the default, the meaning and an example of each key.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.config.reference import Entry, Key, entries

PAGE = Path(__file__).parents[2] / "gateway" / "config" / "REFERENCE.md"
_HEAD = """# All keys of the configuration file

Written by `make docs`. `onceway gateway config --reference` and `man gateway.toml` have the same
text. A table in `[[ ]]` may stand in the file any number of times. Each example is for itself.
"""
EXAMPLES = {
    "gateway.hosts": '["gateway.example"]',
    "listener.bind": '":1883"',
    "listener.systemd": '"onceway-mqtt"',
    "listener.anonymous": "true",
    "listener.connections": "500",
    "listener.packet_bytes": "65_536",
    "listener.keep_alive_s": "300",
    "limits.keep_alive_s": "300",
    "limits.session_expiry_s": "604_800",
    "delivery.overlapping": '"each"',
    "listener.origins": '["https://dashboard.example"]',
    "listener.proxies": '["10.0.0.2"]',
    "listener.proxy_protocol": '["10.0.0.2"]',
    "listener.tls.certificate": '"/etc/onceway/gateway.pem"',
    "listener.tls.key": '"/etc/onceway/gateway.key"',
    "listener.tls.client_ca": '"/etc/onceway/clients.pem"',
    "listener.tls.client_crl": '"/etc/onceway/revoked.pem"',
    "serial.port": '"/dev/serial/by-id/*"',
    "lora.port": '"/dev/ttyUSB0"',
    "lora.boards": "{ roof-7 = 7 }",
    "queue.messages": "1_000_000",
    "queue.bytes": "100_000_000",
    "access.users": '"/var/lib/onceway/users"',
    "access.prefixes": '["site-1-"]',
    "access.command": '["/usr/local/bin/who-is"]',
    "access.url": '"https://users.example/check"',
    "access.hook_remember_s": "600.0",
    "quota.sessions": "20",
    "quota.connections": "10",
    "quota.messages_per_s": "20",
    "quota.bytes_per_s": "10_000",
    "acl.write": '["sensors/%u/#"]',
    "acl.read": '["commands/%u/#"]',
    "acl.subscribe": '["commands/+"]',
    "acl.deny_write": '["sensors/%u/config"]',
    "acl.deny_read": '["secrets/#"]',
    "acl.identity": '["relay-*"]',
    "uplink.landing": '"file:///srv/onceway/landing"',
    "uplink.window": '["01:00-05:00"]',
    "uplink.bytes_per_s": "20_000",
    "uplink.options": '{ known_hosts = "/etc/onceway/known_hosts" }',
    "bridge.name": '"cloud"',
    "bridge.server": '"mqtts://broker.example"',
    "bridge.user": '"site-1"',
    "bridge.password_file": '"/etc/onceway/cloud.password"',
    "bridge.ca": '"/etc/onceway/cloud.pem"',
    "bridge.certificate": '"/etc/onceway/site-1.pem"',
    "bridge.key": '"/etc/onceway/site-1.key"',
    "bridge.up": '["sensors/#"]',
    "bridge.down": '["commands/#"]',
    "bridge.max_bytes": "100_000_000",
    "page.proxies": '["10.0.0.2"]',
    "page.operators": '["alice"]',
    "page.viewers": '["*"]',
    "page.certificate": '"/etc/onceway/page.pem"',
    "page.key": '"/etc/onceway/page.key"',
    "home_assistant.expire_after_s": "3600",
    "home_assistant.page": '"http://pi:8080"',
    "site.members": '{ attic = "10.0.0.11:8884", barn = "10.0.0.12:8884" }',
    "site.bind": '"10.0.0.11:8884"',
    "site.folder": '"/var/lib/onceway/site"',
    "notify.command": '["/usr/local/bin/tell"]',
    "notify.webhook": '"https://hooks.example/onceway"',
    "notify.mail_to": '["lena@example.org"]',
    "notify.mail_from": '"site-1@example.org"',
    "notify.mail_server": '"smtps://mail.example"',
    "notify.mail_user": '"site-1"',
    "notify.mail_password_file": '"/etc/onceway/mail.password"',
    "notify.mail_ca": '"/etc/onceway/mail.pem"',
    "notify.quiet": '["22:00-07:00"]',
    "notify.heartbeat": '"https://alive.example/site-1"',
    "notify.heartbeat_user": '"site-1"',
    "notify.heartbeat_password_file": '"/etc/onceway/alive.password"',
    "notify.heartbeat_ca": '"/etc/onceway/alive.pem"',
    "log.level": '"debug"',
}


def name(entry: Entry) -> str:
    return entry.header.strip("[]")


def example(entry: Entry, key: Key) -> str:
    """Return the example of a key. It differs from the default if EXAMPLES has one, or if the key
    is true or false. Raises KeyError for an empty default without an entry in EXAMPLES.
    """
    others = {"true": "false", "false": "true"}
    if key.default in ("", "[]", "{}"):
        return EXAMPLES[f"{name(entry)}.{key.name}"]
    return EXAMPLES.get(f"{name(entry)}.{key.name}", others.get(key.default, key.default))


def page() -> str:
    return _HEAD + "".join(_section(entry) for entry in entries())


def _section(entry: Entry) -> str:
    rows = "".join(f"| {' | '.join(_cells(entry, key))} |\n" for key in entry.keys)
    head = "| key | default | meaning | example |\n|---|---|---|---|\n" if rows else ""
    return f"\n## `{entry.header}`\n\n{_cell(entry.meaning)}\n\n{head}{rows}".rstrip() + "\n"


def _cells(entry: Entry, key: Key) -> Iterator[str]:
    yield f"`{key.name}`"
    yield "must be given" if key.needed else f"`{key.default}`" if key.default else ""
    yield _cell(key.meaning)
    yield f"`{key.name} = {example(entry, key)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def value(text: str) -> Any:
    return tomllib.loads(f"key = {text}")["key"]


if __name__ == "__main__":
    PAGE.write_text(page())
