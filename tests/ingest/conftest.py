"""One Spark session for all tests of a process; it takes the place of the one that spark-submit would give."""

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# Spark keeps this machine busy: how long an example takes says nothing.
settings.register_profile("ingest", deadline=None)
settings.load_profile("ingest")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    pytest.importorskip("pyspark")
    from gateway.ingest import command
    from gateway.ingest.session import open_session

    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The C1 compiler alone: a test is over before the other one pays off.
    java = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={(command.HERE / 'log4j2.properties').as_uri()}"
    java += f" -Dderby.system.home={tmp_path_factory.mktemp('derby')}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f'--master local[2] --driver-memory 1g --packages {command.DELTA_PACKAGE} --driver-java-options "{java}"'
        f" --conf spark.sql.warehouse.dir={tmp_path_factory.mktemp('warehouse')} --conf spark.sql.shuffle.partitions=1 pyspark-shell"
    )
    session = open_session()
    yield session
    session.stop()
