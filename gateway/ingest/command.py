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
) -> Command:
    """The command that runs `script` (a path from this folder). conf: KEY=VALUE settings for Spark,
    which win over the ingest's own.

    Raises OncewayError when Spark is not installed beside this Python.
    """
    submit = Path(sys.executable).parent / "spark-submit"
    if find_spec("pyspark") is None or not submit.exists():
        raise OncewayError("Spark is not installed", str(submit), how_to_get("centre"))
    settings = [part for setting in conf or [] for part in ("--conf", setting)]
    java = f"-XX:+UseParallelGC -Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
    arguments = [str(submit), "--master", master, "--driver-memory", memory, *PACKAGES]
    arguments += ["--driver-java-options", java, *settings, str(HERE / script), *options]
    # spark-submit looks for its home beside the first find-spark-home on the path.
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{submit.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    return Command(environment, arguments)
