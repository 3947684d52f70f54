"""How the Spark jobs of the ingest start and end. In: what a job does. Out: its log on standard
error, and an exit code.
"""

import logging
import signal
import sys
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from gateway.errors import OncewayError
from gateway.ingest.delta.causes import explained

STOPS = (OncewayError, StreamingQueryException, PySparkException, Py4JError, OSError, MemoryError)
"""What ends a job with a line that says why."""


def run_script(job: Callable[[], None]) -> None:
    """Exit code 0 when `job` returns; 2 for a wrong command line, 130 after Ctrl-C, 1 and a line
    that says why for the rest.
    """
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("onceway.ingest").setLevel(logging.INFO)
    try:
        job()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except STOPS as error:
        sys.exit(f"error: {explained(error)}")
