"""A Spark session for all tests of a process. The ingest's jobs use it instead of a session from
spark-submit.
"""

import functools
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    pytest.importorskip("pyspark")
    from py4j.java_gateway import JavaPackage, JVMView

    from gateway.ingest import command
    from gateway.ingest.jobs.session import open_session

    logging.getLogger("py4j").setLevel(logging.ERROR)
    for names in (JVMView, JavaPackage):  # without a cache, Java searches 300 jars for each name
        names.__getattr__ = functools.cache(names.__getattr__)
    # Tests are too short for the second compiler and for generated code of queries. Without the
    # second compiler, Java reserves only 48 MB for compiled code, and would compile again and
    # again.
    java = (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        " -XX:MetaspaceSize=400m"
        f" -Dlog4j2.configurationFile={(command.HERE / 'log4j2.properties').as_uri()}"
    )
    settings = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    confs = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2] --driver-memory 1g {' '.join(command.packages())} --driver-java-options"
        f' "{java}" {confs} pyspark-shell'
    )
    session = open_session()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def fresh_log(request: pytest.FixtureRequest) -> None:
    """Empty Delta's cache of tables. The cache keeps the state of each table (about 2 MB) for an
    hour, and no later test uses this state.
    """
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark")._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """End the run if a test reaches its time limit during a call to the JVM. The next test would
    get the answer of that call, so all later tests would fail.
    """
    late = call.excinfo is not None and "Timeout (>" in str(call.excinfo.value)
    if late and "spark" in getattr(item, "fixturenames", ()):
        item.session.shouldfail = f"{item.nodeid} ran out of time, in the middle of a call to Spark"
