"""The gateway's configuration file: TOML in, a checked `Config` out.

`onceway gateway run` and `onceway uplink run` read the same file. Each error names key, value and
reason. Unknown keys are refused, so that a misspelt key is not silently ignored. `sections.py`
defines every key; `onceway gateway config --reference` prints them.
"""

import grp
import stat
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.lines import of_syntax
from gateway.config.mistakes import ConfigError, MayNotRead, Mistake, mistakes
from gateway.config.sections import (
    BRIDGE,
    DEVICES_TOPIC,
    IDENTITY,
    INSIDE,
    MEMBER,
    OWN_NAMES,
    READS_REASON_CODES,
    AccessSection,
    AclSection,
    BridgeSection,
    Config,
    DeliverySection,
    GatewaySection,
    HomeAssistantSection,
    LimitsSection,
    ListenerSection,
    LogSection,
    LoraSection,
    MirrorSection,
    NotifySection,
    PageSection,
    QueueSection,
    QuotaSection,
    SerialSection,
    SiteSection,
    SpoolSection,
    UplinkSection,
)
from gateway.config.site_members import follow
from gateway.config.values import is_local, split_address, split_bind, split_broker, split_window
from gateway.system import gateway_name

__all__ = [
    "BRIDGE",
    "DEVICES_TOPIC",
    "IDENTITY",
    "INSIDE",
    "MEMBER",
    "OWN_NAMES",
    "READS_REASON_CODES",
    "AccessSection",
    "AclSection",
    "BridgeSection",
    "Config",
    "ConfigError",
    "DeliverySection",
    "GatewaySection",
    "HomeAssistantSection",
    "LimitsSection",
    "ListenerSection",
    "LogSection",
    "LoraSection",
    "MayNotRead",
    "MirrorSection",
    "Mistake",
    "NotifySection",
    "PageSection",
    "QueueSection",
    "QuotaSection",
    "SerialSection",
    "SiteSection",
    "SpoolSection",
    "UplinkSection",
    "advice",
    "load",
    "parse",
    "split_address",
    "split_bind",
    "split_broker",
    "split_window",
]


_SERVICES = "onceway"
"""Name of the group to which the services' accounts belong (`gateway/system/accounts.py`). People
do not join this group.
"""


def load(path: Path) -> Config:
    """Read a configuration file and check it. Raises ConfigError, which names key, line, value and
    reason of each mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise MayNotRead("you may not read the configuration", str(path), _who_may(path)) from error
    except OSError as error:
        raise ConfigError(f"cannot read the configuration ({error.strerror})", str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the configuration is not UTF-8 (byte {error.start})", str(path)
        ) from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        wrong = [Mistake((), f"not TOML: {error}", of_syntax(error))]
        raise ConfigError.of(wrong, str(path)) from error
    config = parse(values, str(path), text)
    follow(config)
    return config


def _who_may(path: Path) -> str:
    """Return a hint for a user who may not read a file: to use sudo, or which group to join."""
    for place in (path, *path.parents):
        with suppress(PermissionError, KeyError):
            status = place.stat()
            group = grp.getgrgid(status.st_gid).gr_name
            if not status.st_mode & stat.S_IRGRP or status.st_gid == 0 or group == _SERVICES:
                break
            return (
                f"Run the command with sudo, or join the group {group}: `sudo usermod -aG {group}"
                " $USER`, then log in again"
            )
    return "Run the command with sudo"


def parse(values: dict[str, Any], where: str, text: str = "") -> Config:
    """Return the configuration from parsed TOML values. where: the file's name, for errors. text:
    the file's content, for line numbers in errors. Raises ConfigError.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError.of(mistakes(values, error), where, text) from error


def advice(config: Config) -> list[str]:
    """Return a sentence for each setting that is allowed, but often unintended. The sentence names
    a better setting.
    """
    found = [
        f"listener {item.name}: accepts everyone who reaches this machine, without a password. If"
        ' this is not intended, set bind = "127.0.0.1:PORT", or set anonymous = false and add users'
        " with: onceway user add NAME"
        for item in config.listener
        if item.anonymous and not item.is_local
    ]
    if config.uplink is None and "spool" in config.model_fields_set:
        found.append(
            "spool: there is no [uplink] to empty the spool, so the spool is not used. If this is"
            ' not intended, add [uplink] with landing = "URL"'
        )
    if config.uplink is None and config.site is not None and config.site.copies > 1:
        found.append(
            "site.copies has no effect: without [uplink] nothing is spooled, so nothing is copied."
            ' If this is not intended, add [uplink] with landing = "URL"'
        )
    name = config.gateway.name
    if config.uplink is not None and (poor := gateway_name.caution(name)):
        found.append(
            f"gateway.name: {gateway_name.shown(name)!r} {poor}. For a new gateway, use letters,"
            " digits and '-'. A gateway that has landed batches must keep its name"
        )
    loose = [
        item
        for item in config.acl
        if item.named_users and "%c" in f"{item.write}{item.read}{item.subscribe}"
    ]
    if loose and config.access.identifiers == "any":
        found.append(
            "acl: %c is the client identifier, and access.identifiers lets a user choose any that"
            " is free. So a user may publish as another user's device. If a rule with %c lets"
            " several users read, it holds only for clients whose identifier is their user name,"
            " alone or followed by a colon and more text. Write %u for %c, or set identifiers ="
            ' "user name prefix"'
        )
    page = config.page
    if page is not None and page.key is None and not is_local(page.bind):
        found.append(
            f"page {page.bind}: passwords are sent unencrypted, unless a proxy encrypts them. Set"
            " certificate and key, or bind a loopback address"
        )
    return found
