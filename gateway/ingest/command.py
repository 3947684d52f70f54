"""The spark-submit command of this installation.

In: options of the ingest and of spark-submit. Out: environment and argument list. Both `onceway
ingest command` and `run` use it.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gateway.errors import OncewayError
from gateway.extras import how_to_get

HERE = Path(__file__).parent
DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
IN_SPARK = (
    "com.fasterxml.jackson.core com.github.luben com.google.code.findbugs commons-logging"
    " commons-pool io.airlift org.apache.hadoop org.apache.logging.log4j org.apache.parquet"
    " org.locationtech.jts org.roaringbitmap org.slf4j org.xerial.snappy"
)
"""What Delta asks for and Spark brings itself, newer. Without these, 8 jars instead of 33 are
downloaded and named in the log.
"""
PACKAGES = [
    "--packages",
    DELTA_PACKAGE,
    "--exclude-packages",
    ",".join(f"{group}:*" for group in IN_SPARK.split()),
]


JARS = (
    "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar",
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-kernel-defaults-4.4.0.jar",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)
"""What these packages come to, as Ivy calls the files."""

IVY = ".ivy2.5.2"
"""Spark's folder of downloads, below the home directory."""


@dataclass(frozen=True, slots=True)
class Command:
    """environment: variables to set beside those of the caller; arguments: program first."""

    environment: dict[str, str]
    arguments: list[str]

    def __str__(self) -> str:
        """As one types it into a shell."""
        return " ".join(
            [
                *(f"{key}={shlex.quote(value)}" for key, value in self.environment.items()),
                shlex.join(self.arguments),
            ]
        )


def build(
    script: str,
    options: list[str],
    master: str = "local[*]",
    memory: str = "2g",
    conf: list[str] | None = None,
    downloaded: bool = False,
) -> Command:
    """The command that runs `script` (a path from this folder). conf: KEY=VALUE settings for Spark,
    which win over the ingest's own. downloaded: name Delta's jars as files if an earlier start has
    downloaded them: it spares a look for them, and thirty lines about it.

    Raises OncewayError when Spark is not installed beside this Python.
    """
    submit = Path(sys.executable).parent / "spark-submit"
    if find_spec("pyspark") is None or not submit.exists():
        raise OncewayError("Spark is not installed", str(submit), how_to_get("centre"))
    settings = [part for setting in conf or [] for part in ("--conf", setting)]
    java = f"-XX:+UseParallelGC -Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
    arguments = [str(submit), "--master", master, "--driver-memory", memory]
    arguments += (_jars() if downloaded else None) or PACKAGES
    arguments += ["--driver-java-options", java, *settings, str(HERE / script), *options]
    # spark-submit looks for its home beside the first find-spark-home on the path.
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{submit.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    return Command(environment, arguments)


def _jars() -> list[str] | None:
    """Delta's jars as an earlier start has left them; None when one is missing."""
    jars = [Path.home() / IVY / "jars" / name for name in JARS]
    return ["--jars", ",".join(map(str, jars))] if all(jar.is_file() for jar in jars) else None
