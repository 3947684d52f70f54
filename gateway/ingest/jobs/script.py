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
from gateway.ingest.log_lines import to_stderr

STOPS = (OncewayError, StreamingQueryException, PySparkException, Py4JError, OSError, MemoryError)
"""What ends a job with a line that says why."""


def run_script(job: Callable[[], int | None]) -> None:
    """Exit code: what `job` returns, 0 if nothing; 2 for a wrong command line, 130 after Ctrl-C, 1
    and a line that says why for the rest.
    """
    to_stderr("%(asctime)s %(message)s", logging.WARNING)
    logging.getLogger("onceway.ingest").setLevel(logging.INFO)
    try:
        code = job()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except STOPS as error:
        sys.exit(f"error: {explained(error)}")
    if code:
        sys.exit(code)
