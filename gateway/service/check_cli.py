"""`onceway gateway check-config`: print all mistakes of a configuration, one per line."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gateway.access.dry_run import mistakes, takes_anonymous
from gateway.access.users import Users
from gateway.boards.admission import Registry
from gateway.bridge.far import check as check_bridge
from gateway.commands.options import ConfigOption, JsonOption, config_file, nothing_named
from gateway.config import Config, ConfigError, Mistake, advice, load
from gateway.config.lines import Place
from gateway.errors import OncewayError
from gateway.service.listeners import certificates
from gateway.web import sight


def load_to_serve(path: Path) -> Config:
    """Read a configuration. Raises ConfigError if it is wrong or has no listener, port or radio."""
    config = load(path)
    if not (config.listener or config.serial or config.lora):
        raise ConfigError(
            "there is nothing to serve",
            str(path),
            "Add a [[listener]], a [[serial]] or a [[lora]] section",
        )
    return config


def check_config(
    config: ConfigOption = None,
    connect: Annotated[
        bool,
        typer.Option("--connect", help="Also test the landing place, with temporary files."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a configuration file, and the users and certificates that it names. Print each mistake
    on one line, with its line number in the file. Exit code 2: there is a mistake.

    Example: onceway gateway check-config
    """
    file = config_file(config)
    if file is None:
        raise nothing_named("Name the configuration with --config FILE")
    found = load_to_serve(file)
    if wrong := list(_wrong(found)):
        raise ConfigError.of(wrong, str(file), file.read_text(encoding="utf-8"))
    users = Users(found.users_file).hashes
    listed = Registry(found.gateway.data).registered()
    boards = [name for name, item in listed.items() if item.status != "revoked"]
    misfits = mistakes(found.acl, users, boards, anonymous=takes_anonymous(found, users))
    warnings = advice(found) + sight.advice(found.page) + misfits
    places = _try_landing(found, file) if connect else []
    if as_json:
        tried = {"landing": places} if connect else {}
        typer.echo(json.dumps({"file": str(file), "warnings": warnings, **tried}))
        return
    for text in warnings:
        typer.echo(f"warning: {text}")
    for place in places:
        typer.echo(f"landing place {place['url']}: answers; {place['text']}")
    typer.echo(f"{file}: ok")


def _wrong(config: Config) -> Iterator[Mistake]:
    """Yield mistakes in the files that a valid configuration names: users, certificates, site."""
    checks: list[tuple[Place, Callable[[], object]]] = [
        (("gateway", "data"), lambda: Users(config.users_file))
    ]
    for index, listener in enumerate(config.listener):
        checks.append((("listener", index), partial(certificates, listener)))
    for index, bridge in enumerate(config.bridge):
        checks.append((("bridge", index), partial(check_bridge, bridge)))
    if config.site is not None:
        from gateway.site.pki.authority import membership  # only where there is a site

        checks.append((("site",), lambda: membership(config.site_folder, config.gateway.name)))
    for place, check in checks:
        try:
            check()
        except OncewayError as error:
            yield Mistake(place, str(error))


def _try_landing(config: Config, file: Path) -> list[dict[str, str]]:
    """Test the landing place with temporary files. Return a row with the result, or no row if no
    landing place is configured. Raises OncewayError if the test fails.
    """
    from gateway.uplink import credentials
    from gateway.uplink.landing import without_password
    from gateway.uplink.spool import Spool
    from gateway.uplink.try_place import try_place

    settings = config.uplink
    if settings is None:
        return []
    credentials.take(file)
    landed = 0
    with suppress(OncewayError), Spool(config.gateway.data, to_read=True) as spool:
        landed, _ = spool.last_landed()
    way = try_place(settings, config.gateway.name, landed)
    return [{"url": without_password(settings.landing), "way": way, "text": way.text}]
