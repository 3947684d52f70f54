"""`onceway ingest`: print or run the Spark job."""

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import OncewayError
from gateway.ingest.command import Command, build
from gateway.ingest.interval import seconds

app = typer.Typer(no_args_is_help=True, help="Landing place to Delta table, with Spark.")

Landing = Annotated[str, typer.Option(metavar="URL", help="Where the gateways' uplinks put batches: a folder, sftp://, s3://, ...")]
TableName = Annotated[str, typer.Option(metavar="PATH_OR_NAME", help="Delta table for the publications: a path, a URL or a catalog name.")]
Checkpoint = Annotated[str, typer.Option(metavar="URL", help="Folder for Spark's record of what was read.")]
AvailableNow = Annotated[bool, typer.Option("--available-now", help="Take what is there and stop.")]
Every = Annotated[str, typer.Option(metavar="TIME", help="Look for new batches so often, e.g. 30s or 5m.")]
Rows = Annotated[int, typer.Option(metavar="N", help="Most rows of a micro-batch.")]
Master = Annotated[str, typer.Option(metavar="URL", help="Spark master, e.g. spark://host:7077.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory of the driver.")]
Conf = Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="A Spark setting; may be given several times.")]


def _ingest(
    landing: str, table: str, checkpoint: str, available_now: bool, every: str, rows: int, master: str, memory: str, conf: list[str]
) -> Command:
    try:
        seconds(every)
    except ValueError as error:
        raise OncewayError(str(error), "--every") from None
    options = ["--landing", landing, "--table", table, "--checkpoint", checkpoint, "--rows", str(rows)]
    options += ["--available-now"] if available_now else ["--every", every]
    return build("onceway_ingest.py", options, master, memory, conf)


@app.command()
def command(
    landing: Landing,
    table: TableName,
    checkpoint: Checkpoint,
    available_now: AvailableNow = False,
    every: Every = "30s",
    rows: Rows = 500_000,
    master: Master = "local[*]",
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
) -> None:
    """Print the spark-submit command of this installation.

    Example: onceway ingest command --landing /srv/landing --table /srv/lake/publications --checkpoint /srv/lake/checkpoint
    """
    print(_ingest(landing, table, checkpoint, available_now, every, rows, master, memory, conf))


@app.command()
def run(
    landing: Landing,
    table: TableName,
    checkpoint: Checkpoint,
    available_now: AvailableNow = False,
    every: Every = "30s",
    rows: Rows = 500_000,
    master: Master = "local[*]",
    memory: Memory = "2g",
    conf: Conf = [],  # noqa: B006
) -> None:
    """Run that command in place of this process.

    Example: onceway ingest run --landing /srv/landing --table /srv/lake/publications --checkpoint /srv/lake/checkpoint --available-now
    """
    if shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin") + os.pathsep + os.environ.get("PATH", "")) is None:
        raise OncewayError("Spark needs Java 17, and there is no `java` here", hint="On Debian: apt-get install openjdk-17-jre-headless")
    if "://" not in landing and not Path(landing).is_dir():
        raise OncewayError("there is no such landing place", landing, "The uplink makes it when it lands its first batch")
    _execute(_ingest(landing, table, checkpoint, available_now, every, rows, master, memory, conf))


def _execute(command: Command) -> None:
    os.execve(command.arguments[0], command.arguments, {**os.environ, **command.environment})  # noqa: S606
