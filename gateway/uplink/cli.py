"""`onceway uplink`: the process that lands the spool, and its status."""

import json
import logging
import signal
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, cast

import typer

from gateway.commands.exit_codes import NO_UPLINK, OUTAGE
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    config_file,
    nothing_named,
)
from gateway.config import Config, LogSection, UplinkSection, parse
from gateway.config import load as load_config
from gateway.errors import OncewayError, UsageError
from gateway.system import logs
from gateway.system.durations import seconds
from gateway.system.lock import ProcessLock
from gateway.system.notify import notify
from gateway.uplink import credentials
from gateway.uplink.landing import Landing, Unreachable, open_landing, without_password
from gateway.uplink.spool import NoSpool, Spool
from gateway.uplink.status import look

GRACE_S = 5
LOOK_S = 1.0

log = logging.getLogger(__name__)

app = typer.Typer(
    no_args_is_help=True, help="Land the publications of the spool in numbered batches."
)

LandingOption = Annotated[
    str | None,
    typer.Option(
        "--landing", help="Landing URL, such as file:///srv/landing or s3://bucket/folder."
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="The gateway's name, instead of the one in the file.")
]


class NoUplink(OncewayError):
    """Error for a configuration without a landing place. Its exit code tells systemd not to start
    the uplink again.
    """

    exit_code = NO_UPLINK

    def __init__(self, where: str) -> None:
        hint = 'To land readings, add it with landing = "URL", then: sudo systemctl start'
        super().__init__("there is no section [uplink]", where, f"{hint} onceway-uplink")


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of an uplink, from the command line and the configuration file."""

    data: Path
    name: str | None
    settings: UplinkSection
    log: LogSection
    config: Path | None = None

    def connect(self) -> Landing:
        """Read the current credentials, and open the landing place. Raises Unreachable if the
        credentials cannot be read or the place cannot be reached.
        """
        try:
            credentials.take(self.config)
        except OncewayError as error:
            raise Unreachable(f"the credentials cannot be read: {error}") from error
        return open_landing(self.settings.landing, self.settings.options, self.settings.shared)


def _landing_alone(landing: str) -> UplinkSection:
    """Return the settings of an uplink with nothing but a landing place."""
    settings = parse({"uplink": {"landing": landing}}, "--landing").uplink
    assert settings is not None  # noqa: S101 - it was just given
    return settings


def landing_settings(settings: UplinkSection | None, landing: str | None) -> UplinkSection | None:
    """Return the settings of the file. The option `landing`, if given, replaces the file's landing
    place. Return None if neither names one. If the option names another place than the file, the
    file's `shared = false` does not apply. The file's `options` apply only if both places are of
    one kind.
    """
    if landing is None:
        return settings
    typed = _landing_alone(landing)
    if settings is None:
        return typed
    if _same(typed.landing, settings.landing):
        return settings.model_copy(update={"landing": typed.landing})
    update: dict[str, object] = {"landing": typed.landing, "shared": True}
    if _scheme(typed.landing) != _scheme(settings.landing):
        update["options"] = {}
    return settings.model_copy(update=update)


def _scheme(url: str) -> str:
    scheme = url.partition("://")[0] if "://" in url else "file"
    return {"local": "file", "ssh": "sftp", "s3a": "s3"}.get(scheme, scheme)


def _same(one: str, other: str) -> bool:
    """Whether two landing URLs are equal, except for the spelling of the scheme."""
    first, second = ((_scheme(url), url.rpartition("://")[2].rstrip("/")) for url in (one, other))
    return first == second


def _job(config: Path | None, data: Path | None, landing: str | None, name: str | None) -> Job:
    if config is None and data is not None and landing is not None:
        return Job(data, name, _landing_alone(landing), LogSection())
    config = config_file(config)
    if config is None:
        raise nothing_named(
            "Name the configuration with --config FILE, or use --data DIR with --landing URL"
        )
    loaded = load_config(config)
    credentials.take(config)
    settings = landing_settings(loaded.uplink, landing)
    if settings is None:
        raise NoUplink(str(config))
    return Job(
        data or loaded.gateway.data, name or loaded.gateway.name, settings, loaded.log, config
    )


def _check_name(spool: Spool, job: Job) -> None:
    name = spool.get("gateway")
    if job.name is not None and job.name != name:
        raise OncewayError(
            f"this database belongs to the gateway {name}, not {job.name}",
            str(job.data),
            "After a change of name, start the gateway first. Two gateways need a data directory"
            " each.",
        )


def _open_when_there(job: Job, stop: threading.Event) -> Spool | None:
    """Wait for the gateway's first start, which creates the database, and return the spool. None if
    a stop is requested. Raises NoSpool if the data directory does not exist.
    """
    logged = False
    while not stop.is_set():
        try:
            return Spool(job.data)
        except NoSpool as error:
            if not job.data.is_dir():
                raise
            if not logged:
                log.warning("%s. The uplink waits until the gateway creates it", error)
                notify("READY=1")  # only the gateway is missing
                logged = True
            stop.wait(LOOK_S)
    return None


def _introduce(spool: Spool, settings: UplinkSection) -> None:
    """Log one line about this uplink: gateway, epoch, landing place, number of the next batch."""
    origin, waiting = spool.origin(), spool.unlanded()
    number = waiting.number if waiting else spool.last_cut()[0] + 1
    log.info(
        "uplink of %s, epoch %s, to %s; next batch: %d",
        origin.gateway,
        origin.epoch,
        without_password(settings.landing),
        number,
    )


class _GraceTimeOver(BaseException):
    """Exception that ends an operation which still runs when the grace time of a stop is over.
    Every step is safe to interrupt.
    """


def _stop_by_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set. If an operation still runs GRACE_S seconds after
    the signal, for example on a dead connection, it is interrupted.
    """
    stop = threading.Event()

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.alarm(GRACE_S)

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise _GraceTimeOver

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGALRM, leave)
    return stop


@app.command()
def run(
    config: ConfigOption = None,
    data: DataOption = None,
    landing: LandingOption = None,
    name: NameOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Land all rows of the spool now, then exit.")
    ] = False,
    log_format: Annotated[
        logs.Form | None,
        typer.Option("--log-format", help="Log format, instead of log.format in the file."),
    ] = None,
) -> None:
    """Cut the spool into batches and land them, until stopped.

    Example: onceway uplink run
    """
    from gateway.uplink.cutter import Cutter
    from gateway.uplink.runner import Uplink
    from gateway.uplink.signing import load_or_make

    try:
        job = _job(config, data, landing, name)
    except NoUplink:
        notify("READY=1")  # no uplink is wanted, so the service is ready
        raise
    logs.configure(log_format or logs.Form(job.log.format), job.log.level, ("gateway",))
    stop = _stop_by_signal()
    found = Spool(job.data) if once else _open_when_there(job, stop)
    if found is None:
        return
    settings = job.settings
    with found as spool, closing(ProcessLock(job.data / "uplink.lock")):
        _check_name(spool, job)
        uplink = Uplink(
            spool,
            Cutter(spool, job.data, settings),
            settings,
            job.connect,
            load_or_make(job.data),
        )
        _introduce(spool, settings)
        notify("READY=1")
        with suppress(_GraceTimeOver):
            uplink.run(stop, once)
        notify("STOPPING=1")


@app.command()
def claim(
    config: ConfigOption = None,
    data: DataOption = None,
    landing: LandingOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make this gateway the owner of its name at the landing place. Use this command after the
    gateway's card was replaced, or the place was moved.

    First stop the other gateway of that name, and this gateway's uplink.

    Example: onceway uplink claim
    """
    from gateway.uplink import epoch

    job = _job(config, data, landing, name)
    with Spool(job.data) as spool, closing(ProcessLock(job.data / "uplink.lock")):
        _check_name(spool, job)
        epoch.claim(
            spool, open_landing(job.settings.landing, job.settings.options, job.settings.shared)
        )
        origin, place = spool.origin(), without_password(job.settings.landing)
    if as_json:
        typer.echo(json.dumps({"gateway": origin.gateway, "epoch": origin.epoch, "landing": place}))
    else:
        typer.echo(
            f"{place}: this gateway now owns the name {origin.gateway}, epoch {origin.epoch}"
        )


@app.command()
def key(config: ConfigOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print the public key of this gateway's signatures, for the centre. The private key is in
    DATA/uplink.key, and is created now if there is none.

    Example: ssh pi sudo onceway uplink key | onceway ingest trust --table /srv/lake/publications -
    """
    from gateway.uplink.signing import load_or_make

    found = config if data else config_file(config)
    if data is None and found is None:
        raise nothing_named(
            "Name the configuration with --config FILE, or a data directory with --data DIR"
        )
    loaded = load_config(found) if found else None
    folder = data or cast(Config, loaded).gateway.data
    if loaded is not None:
        name = loaded.gateway.name
    else:
        with Spool(folder, to_read=True) as spool:
            name = spool.origin().gateway
    public = load_or_make(folder).public
    typer.echo(json.dumps({"gateway": name, "key": public}) if as_json else f"{public} {name}")


@app.command()
def status(
    config: ConfigOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    max_outage: Annotated[
        str, typer.Option(metavar="TIME", help="How long an outage may last, e.g. 30m or 2h.")
    ] = "1h",
) -> None:
    """Show waiting messages, cut batches and landed batches, and what delays the readings:
    an outage, the window, the rate, or a batch that is not full yet.

    Exit code 9: the landing place has not been reached for longer than --max-outage.

    Example: onceway uplink status --json
    """
    bound_s = _seconds(max_outage)
    found = config if data else config_file(config)
    if data is None and found is None:
        raise nothing_named(
            "Name the configuration with --config FILE, or a data directory with --data DIR"
        )
    loaded = load_config(found) if found else None
    folder = data or cast(Config, loaded).gateway.data
    with Spool(folder, to_read=True) as spool:
        bound, settings = (loaded.spool_bytes, loaded.uplink) if loaded else (None, None)
        state = look(spool, folder, bound, settings)
    typer.echo(json.dumps(state.as_dict()) if as_json else state.as_text())
    if state.outage_s(time.time()) > bound_s:
        raise typer.Exit(OUTAGE)


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(str(error), "--max-outage") from None
