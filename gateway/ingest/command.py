"""The commands that start a Spark job of this installation.

In: options of the ingest and of spark-submit. Out: environment variables and arguments. They are
either for spark-submit (`onceway ingest command`), or for a Python process that starts Java itself
(`onceway ingest run`).
"""

import os
import shlex
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from gateway.commands.extras import how_to_get
from gateway.errors import OncewayError
from gateway.ingest import class_archive
from gateway.ingest.memory import driver_heap

HERE = Path(__file__).parent
BEGIN = HERE / "jobs" / "begin.py"
SUBMIT = Path(sys.executable).parent / "spark-submit"
DELTA = "4.4.0"
"""Version of Delta Lake. The name of its jar contains this version and Spark's."""
IN_SPARK = (
    "com.fasterxml.jackson.core com.github.luben com.google.code.findbugs commons-logging"
    " commons-pool io.airlift org.apache.hadoop:hadoop-client* org.apache.logging.log4j"
    " org.apache.parquet org.locationtech.jts org.roaringbitmap org.slf4j org.xerial.snappy"
)
"""Dependencies of Delta that Spark already has in newer versions. Without these exclusions, 33 jars
instead of 8 are downloaded and logged."""
AMAZON_PACKAGES = tuple(
    f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts")
)
S3_IN_SPARK = "commons-codec io.netty org.apache.httpcomponents software.amazon.awssdk:bundle"
"""Dependencies of the packages for S3 that are excluded from the download. `bundle` is a jar with
all of Amazon's services.
"""

IVY = ".ivy2.5.2"
"""Folder of Spark's downloads, relative to the home directory."""

Archive = Literal["use", "write", "leave"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command line. environment: variables added to the caller's environment. arguments: the
    program and its arguments.
    """

    environment: dict[str, str]
    arguments: list[str]

    def __str__(self) -> str:
        """Return the command as typed into a shell."""
        return " ".join(
            [
                *(f"{key}={shlex.quote(value)}" for key, value in self.environment.items()),
                shlex.join(self.arguments),
            ]
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A Spark job. spark: options of spark-submit. script: path of the job's Python file, then its
    options. environment: variables for Spark.
    """

    spark: list[str]
    script: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def submitted(self) -> Command:
        """Return the spark-submit command. spark-submit starts Java, and Java starts the script."""
        # spark-submit takes its home from the first find-spark-home on the path.
        path = f"{SUBMIT.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        environment = {"PYSPARK_PYTHON": sys.executable, "PATH": path, **self.environment}
        return Command(environment, [str(SUBMIT), *self.spark, *self.script])

    def first(self) -> Command:
        """Return the command that runs the script, which starts Java itself.

        A signal to this process reaches the script before Java ends, so the script can save its
        state. With spark-submit, Java would get the signal first and end at once.
        """
        quiet = ["--conf", "spark.ui.showConsoleProgress=false"]  # a shell would show bars
        options = shlex.join([*quiet, *self.spark, "pyspark-shell"])
        environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": options}
        environment |= self.environment
        return Command(environment, [sys.executable, str(BEGIN), *self.script])


def build(
    script: str,
    options: list[str],
    master: str = "local[*]",
    memory: str | None = None,
    conf: list[str] | None = None,
    downloaded: bool = False,
    archive: Archive = "use",
) -> Job:
    """Return the job that runs `script`, a path relative to this folder.

    memory: memory of the driver, such as "2g"; by default a value that fits this machine. conf:
    KEY=VALUE settings for Spark, which override the ingest's own. downloaded: whether to name
    Delta's jars as files if an earlier start has downloaded them; this saves a lookup and thirty
    log lines. archive: whether Java uses, writes or ignores the archive of its classes
    (`class_archive.py`). If an option is an `s3a:` URL, the packages for tables on S3 are added.
    Raises OncewayError if Spark is not installed for this Python, or a setting is invalid.
    """
    if find_spec("pyspark") is None or not SUBMIT.exists():
        raise OncewayError("Spark is not installed", str(SUBMIT), how_to_get("centre"))
    for setting in conf or []:
        if not setting.partition("=")[1]:
            raise OncewayError("a Spark setting is KEY=VALUE", f"--conf {setting}")
    settings = [part for setting in conf or [] for part in ("--conf", setting)]
    java = f"-XX:+UseParallelGC -Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
    spark = ["--master", master, "--driver-memory", memory or driver_heap()]
    s3 = any(option.startswith("s3a:") for option in options)
    found = downloaded_jars() if downloaded and not s3 else None
    environment = dict[str, str]()
    if found is None:
        spark += packages(s3)
    else:
        spark += ["--jars", ",".join(map(str, found))]
        if archive != "leave":
            writes = archive == "write"
            chosen = class_archive.options_to_write if writes else class_archive.options
            more, environment = chosen(found)
            java = f"{java} {more}".rstrip()
    spark += ["--driver-java-options", java, *settings]
    return Job(spark, [str(HERE / script), *options], environment)


def packages(s3: bool = False) -> list[str]:
    """Return the options of spark-submit that download Delta. s3: whether to download the packages
    for tables on S3, too.
    """
    wanted = [f"io.delta:{_delta_spark()}:{DELTA}"]
    wanted += [f"org.apache.hadoop:hadoop-aws:{_hadoop()}", *AMAZON_PACKAGES] if s3 else []
    in_spark = f"{IN_SPARK} {S3_IN_SPARK if s3 else ''}".split()
    left_out = [one if ":" in one else f"{one}:*" for one in in_spark]
    return ["--packages", ",".join(wanted), "--exclude-packages", ",".join(left_out)]


def jars() -> list[str]:
    """Return the file names of Delta's jars, as Ivy writes them."""
    parts = ["kernel-api", "kernel-defaults", "kernel-unitycatalog", "storage"]
    return [
        "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar",
        *(f"io.delta_delta-{part}-{DELTA}.jar" for part in parts),
        f"io.delta_{_delta_spark()}-{DELTA}.jar",
        "io.unitycatalog_unitycatalog-client-0.6.0.jar",
        "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
    ]


def _delta_spark() -> str:
    return f"delta-spark_{'.'.join(version('pyspark').split('.')[:2])}_2.13"


def _hadoop() -> str:
    """Return the version of Hadoop that the installed Spark contains."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent if spec and spec.origin else HERE
    (jar,) = folder.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def downloaded_jars() -> list[Path] | None:
    """Return the paths of Delta's jars, which an earlier start has downloaded. None if a jar is
    missing.
    """
    found = [Path.home() / IVY / "jars" / name for name in jars()]
    return found if all(jar.is_file() for jar in found) else None
