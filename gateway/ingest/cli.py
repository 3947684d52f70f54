"""`onceway ingest`: print or run the Spark jobs."""

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.commands.options import JsonOption
from gateway.errors import OncewayError, UsageError
from gateway.ingest import class_archive, places
from gateway.ingest.command import Job, build, downloaded_jars
from gateway.ingest.exit_codes import SOMEBODY_SHOULD_LOOK
from gateway.ingest.prepare import prepare as prepare_centre
from gateway.system.amounts import amount
from gateway.system.durations import seconds
from gateway.system.gateway_name import shown

app = typer.Typer(
    no_args_is_help=True,
    help="Bring batches from the landing place into a Delta table, with Spark.",
)

NO_TIME = "0s"

Landing = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where the gateways' uplinks put batches: a folder, sftp://, s3://, ...",
        callback=places.option,
    ),
]
TableName = Annotated[
    str,
    typer.Option(
        metavar="PATH_OR_NAME",
        help="Delta table for the publications: a path, a URL or a catalog name (SCHEMA.TABLE).",
        callback=places.option,
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Folder for Spark's record of the batches read.", callback=places.option
    ),
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Process the batches that have landed, and stop.")
]
Every = Annotated[
    str,
    typer.Option(metavar="TIME", help="Interval between checks for new batches, e.g. 30s or 5m."),
]
Damaged = Annotated[
    Literal["skip", "wait"],
    typer.Option(
        help=(
            "If a batch is damaged: quarantine it and go on with its gateway (skip), or read no"
            " further batch of its gateway until it is repaired (wait)."
        )
    ),
]
Trusted = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="File of the gateways' keys (`onceway ingest trust`).",
        callback=places.option,
        show_default="beside the table, TABLE_trusted.json",
    ),
]
Settle = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help=(
            "For a landing place that is copied to the centre (rclone, rsync): how long a batch "
            "may be incomplete, e.g. 10m, before it counts as damaged."
        ),
    ),
]
Writer = Annotated[
    Literal["auto", "fast", "public"],
    typer.Option(
        help=(
            "Write by Delta's own classes (fast), by its public API (public), or as the table"
            " allows (auto)."
        )
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Largest number of rows of a micro-batch.",
        show_default="500000, fewer below 4 GB of memory",
    ),
]
Master = Annotated[str, typer.Option(metavar="URL", help="Spark master, e.g. spark://host:7077.")]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of the driver.",
        show_default="2g, or two fifths of what this machine has",
    ),
]
Conf = Annotated[
    list[str],
    typer.Option(metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]


def _ingest(
    landing: str,
    table: str,
    checkpoint: str,
    available_now: bool,
    every: str,
    damaged: str,
    rows: int | None,
    master: str,
    memory: str | None,
    conf: list[str],
    trusted: str | None,
    writer: str,
    settle: str,
    downloaded: bool = False,
) -> Job:
    _check_time(every, "--every")
    _check_time(settle, "--settle")
    options = [
        "--landing",
        landing,
        "--table",
        table,
        "--checkpoint",
        checkpoint,
        "--damaged",
        damaged,
    ]
    options += ["--rows", str(rows)] if rows is not None else []
    options += ["--available-now"] if available_now else ["--every", every]
    options += ["--trusted", trusted] if trusted else []
    options += ["--writer", writer] if writer != "auto" else []
    options += ["--settle", settle] if settle != NO_TIME else []
    return build("jobs/stream.py", options, master, memory, conf, downloaded)


@app.command()
def command(
    landing: Landing,
    table: TableName,
    checkpoint: Checkpoint,
    available_now: AvailableNow = False,
    every: Every = "30s",
    damaged: Damaged = "skip",
    rows: Rows = None,
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    trusted: Trusted = None,
    writer: Writer = "auto",
    settle: Settle = NO_TIME,
    as_json: JsonOption = False,
) -> None:
    """Print the spark-submit command of this installation.

    Example: onceway ingest command --landing /srv/landing --table /srv/lake/publications
    --checkpoint /srv/lake/checkpoint
    """
    made = _ingest(
        landing,
        table,
        checkpoint,
        available_now,
        every,
        damaged,
        rows,
        master,
        memory,
        conf,
        trusted,
        writer,
        settle,
    ).submitted()
    print(json.dumps({"command": str(made)}) if as_json else made)


@app.command()
def prepare(memory: Memory = None, as_json: JsonOption = False) -> None:
    """Download Delta, and store the classes that Java loads. Each start then takes a quarter less
    time.

    The command takes about a minute, and 200 MB in ~/.ivy2.5.2. Repeat it after an update of Java
    or of Onceway: until then, starts are slow again. It needs the internet only for the jars.

    Example: onceway ingest prepare
    """

    def tell(step: str) -> None:
        if not as_json:
            print(f"{step} ...", file=sys.stderr, flush=True)

    archive = prepare_centre(memory, tell)
    size = archive.stat().st_size
    if as_json:
        print(json.dumps({"archive": str(archive), "bytes": size}))
    else:
        print(f"Prepared: {archive}, {size / 1e6:.0f} MB")


@app.command()
def run(
    landing: Landing,
    table: TableName,
    checkpoint: Checkpoint,
    available_now: AvailableNow = False,
    every: Every = "30s",
    damaged: Damaged = "skip",
    rows: Rows = None,
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    trusted: Trusted = None,
    writer: Writer = "auto",
    settle: Settle = NO_TIME,
) -> None:
    """Run the ingest; it replaces this process. SIGTERM and Ctrl-C stop it cleanly.

    Exit code 5, with --available-now: all available batches are in the table, but a gateway is
    held.

    Example: onceway ingest run --landing /srv/landing --table /srv/lake/publications --checkpoint
    /srv/lake/checkpoint --available-now
    """
    _check_landing(landing)
    _execute(
        _ingest(
            landing,
            table,
            checkpoint,
            available_now,
            every,
            damaged,
            rows,
            master,
            memory,
            conf,
            trusted,
            writer,
            settle,
            True,
        )
    )


@app.command()
def release(
    landing: Landing,
    table: TableName,
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    trusted: Trusted = None,
    writer: Writer = "auto",
) -> None:
    """Add to the table the batches in quarantine that were repaired at the landing place. May run
    while the ingest runs, unless the table is on S3.

    Example: onceway ingest release --landing /srv/landing --table /srv/lake/publications
    """
    _check_landing(landing)
    _execute(
        build(
            "jobs/upkeep.py",
            [
                "--table",
                table,
                "--writer",
                writer,
                "release",
                "--landing",
                landing,
                *(["--trusted", trusted] if trusted else []),
            ],
            master,
            memory,
            conf,
            downloaded=True,
        )
    )


@app.command()
def compact(
    table: TableName,
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    writer: Writer = "auto",
) -> None:
    """Merge the tables' small files into large ones. Run it once a day. May run while the ingest
    runs. On a local disk, the ingest waits until this command ends. If the table is on S3, stop the
    ingest first.

    Example: onceway ingest compact --table /srv/lake/publications
    """
    _execute(
        build(
            "jobs/upkeep.py",
            ["--table", table, "--writer", writer, "compact"],
            master,
            memory,
            conf,
            True,
        )
    )


@app.command()
def summarise(
    table: TableName,
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    writer: Writer = "auto",
) -> None:
    """Bring the tables about devices up to date: the devices (…_devices), and the readings of each
    device per day (…_quality). May run while the ingest runs, unless the table is on S3.

    Example: onceway ingest summarise --table /srv/lake/publications
    """
    _execute(
        build(
            "jobs/upkeep.py",
            ["--table", table, "--writer", writer, "summarise"],
            master,
            memory,
            conf,
            True,
        )
    )


@app.command()
def expire(
    table: TableName,
    older_than: Annotated[
        str,
        typer.Option(metavar="TIME", help="Age above which publications are deleted, e.g. 400d."),
    ],
    master: Master = "local[*]",
    memory: Memory = None,
    conf: Conf = [],  # noqa: B006
    writer: Writer = "auto",
) -> None:
    """Delete old publications and their readings. Their keys are kept, so that no old batch adds
    them again. May run while the ingest runs, unless the table is on S3.

    Example: onceway ingest expire --table /srv/lake/publications --older-than 400d
    """
    _check_time(older_than, "--older-than")
    _execute(
        build(
            "jobs/upkeep.py",
            ["--table", table, "--writer", writer, "expire", "--older-than", older_than],
            master,
            memory,
            conf,
            downloaded=True,
        )
    )


@app.command()
def clean(
    landing: Landing,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Delta table of the publications: a path or URL.",
            callback=places.option,
        ),
    ] = None,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Age above which batches are deleted, e.g. 30d.")
    ] = "2d",
    feed: Annotated[
        str | None,
        typer.Option(
            metavar="GATEWAY/EPOCH",
            help="Delete nothing: record that batches of this feed were deleted by hand.",
        ),
    ] = None,
    until: Annotated[
        int, typer.Option(metavar="NUMBER", help="With --feed: the last batch that was deleted.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Delete batches at the landing place that are already in the table. A file at the landing
    place names the deleted batches, so that no ingest waits for them. Does not need Spark. If the
    table is restored to an older version, it cannot get deleted batches again.

    Example: onceway ingest clean --landing /srv/landing --table /srv/lake/publications --older-than
    30d
    """
    _check_time(older_than, "--older-than")
    from gateway.ingest import clean as cleaning
    from gateway.ingest.landing import place

    with place.reached(landing):
        zone = place.Landing(landing)
        if feed is not None:
            cleaning.say(zone, feed, until)
            text = f"{feed}: recorded that batches up to {until} were deleted on purpose"
            print(json.dumps([{"feed": feed, "batches": 0, "until": until}]) if as_json else text)
        elif table is None:
            raise UsageError("name the table that has the batches", hint="Use --table PATH")
        elif until:
            raise UsageError("--until needs a feed", hint="Give --feed GATEWAY/EPOCH")
        else:
            done = []
            try:
                for one in cleaning.clean(zone, table, seconds(older_than)):
                    done.append(asdict(one))
                    if not as_json:
                        print(
                            f"{shown(one.feed)}: {amount(one.batches, 'batch', 'batches')} deleted,"
                            f" up to {one.until}"
                        )
            finally:
                if as_json:
                    print(json.dumps(done))


@app.command("trust")
def trust_command(
    table: TableName,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help=(
                "Keys to trust from now on, one per line, as `onceway uplink key` prints them; `-`"
                " for standard input. Without FILE, print the keys that are trusted now."
            ),
        ),
    ] = None,
    distrust: Annotated[
        list[str],
        typer.Option(
            metavar="GATEWAY", help="Forget the keys of a gateway; may be given several times."
        ),
    ] = [],  # noqa: B006
    unsigned_until: Annotated[
        list[str],
        typer.Option(
            metavar="GATEWAY/EPOCH:NUMBER",
            help=(
                "Accept these batches of a gateway without a signature: they are older than "
                "its key."
            ),
        ),
    ] = [],  # noqa: B006
    unsigned: Annotated[
        bool | None,
        typer.Option(
            "--allow-unsigned/--refuse-unsigned",
            help="Whether unsigned batches of gateways without a trusted key are accepted.",
            show_default="refused, except for a table that is older than signatures",
        ),
    ] = None,
    old_names: Annotated[
        bool,
        typer.Option(
            "--old-names",
            help=(
                "Also accept names that only gateways up to version 0.2.0 could have, such as "
                "`_lab`."
            ),
        ),
    ] = False,
    trusted: Trusted = None,
    as_json: JsonOption = False,
) -> None:
    """Set the gateways that may write into the table, by their public keys. A running ingest reads
    the change at its next check. Does not need Spark, and works before the first start.

    Example: ssh pi sudo onceway uplink key | onceway ingest trust --table /srv/lake/publications -
    """
    from gateway.ingest.landing import keys as trusted_keys

    if trusted is None and "/" not in table and "." in table.strip("."):
        raise OncewayError(
            "the folder of a table with a catalog name is not known to this command",
            table,
            "Give the table's path or URL. Or name the file of keys with --trusted, here and for"
            " `run`",
        )
    url = trusted or trusted_keys.keys_url(table)
    try:
        known = trusted_keys.load(url)
        lines = [line for file in keys or () for line in _lines(file)]
        if trusted_keys.change(known, lines, distrust, unsigned_until, unsigned, old_names):
            trusted_keys.save(url, known)
    except OSError as error:
        raise OncewayError(f"the file of keys cannot be reached: {error}", url) from error
    print(known.to_json().decode() if as_json else known.text())


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OncewayError(f"cannot read the keys ({error})", file) from error
    return text.splitlines()


@app.command("report")
def report_command(
    landing: Landing,
    table: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Delta table of the publications: a path or URL.",
            callback=places.option,
        ),
    ],
    trusted: Trusted = None,
    as_json: JsonOption = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the report as Prometheus metrics, e.g. for node_exporter; - prints"
            " only the metrics.",
        ),
    ] = None,
    max_lag: Annotated[
        str, typer.Option(metavar="TIME", help="How long a batch may wait for the ingest.")
    ] = "1h",
    max_missing: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Number of missing sequences above which they are a problem."
        ),
    ] = None,
) -> None:
    """Show each gateway's newest batch in the table, waiting batches, quarantine, duplicates and
    missing sequences.

    Exit code 5, for a problem that needs a person: nothing has ever landed; a gateway is held, gone
    from the landing place, or behind by more than --max-lag; a batch is in quarantine; a key has
    two payloads; a table is damaged or lacks rows; a second gateway with the same name was refused;
    more sequences are missing than --max-missing; the ingest is silent, or ended with an error.
    Each problem is named at the end (stderr).

    Example: onceway ingest report --landing /srv/landing --table /srv/lake/publications
    """
    _check_time(max_lag, "--max-lag")
    from gateway.ingest.landing import place
    from gateway.ingest.report import metrics as prometheus
    from gateway.ingest.report import report

    with place.reached(landing):
        made = report.make(place.Landing(landing), table, trusted)
    if metrics is not None:
        prometheus.put(made, metrics)
    problems = made.problems(seconds(max_lag), max_missing)
    if str(metrics) != "-":
        fields = asdict(made) | {"problems": problems}
        print(json.dumps(fields, indent=2) if as_json else report.text(made))
    if not as_json:
        for problem in problems:
            typer.echo(f"problem: {shown(problem)}", err=True)
    if problems:
        raise typer.Exit(SOMEBODY_SHOULD_LOOK)


def _check_time(text: str, option: str) -> None:
    try:
        seconds(text)
    except ValueError as error:
        raise UsageError(str(error), option) from None


def _check_landing(landing: str) -> None:
    folder = places.local_folder(landing)
    if folder is not None and not Path(folder).is_dir():
        raise OncewayError(
            "there is no such landing place",
            landing,
            "The uplink creates the folder when it lands the first batch",
        )


def _execute(job: Job) -> None:
    """Replace this process by the job. Raises OncewayError if JAVA_HOME has no bin/java. Also
    raises it if JAVA_HOME is unset, and PATH has no `java`.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(f"{home}/bin/java", os.X_OK):
        raise OncewayError(
            "JAVA_HOME has no bin/java",
            home,
            "Correct JAVA_HOME, or unset it to use the `java` in PATH",
        )
    if not home and shutil.which("java") is None:
        raise OncewayError(
            "Spark needs Java 17 or 21, but there is no `java` here",
            hint="On Debian: apt-get install default-jre-headless",
        )
    jars = downloaded_jars() if "--jars" in job.spark else None  # tables on S3 need other jars
    if jars is not None and class_archive.is_stale(jars):
        print(
            "This start takes longer. `onceway ingest prepare` shortens later starts",
            file=sys.stderr,
            flush=True,
        )
    command = job.first()
    os.execve(command.arguments[0], command.arguments, {**os.environ, **command.environment})  # noqa: S606
