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
from gateway.ingest.delta.tables import first_line


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
    except OncewayError as error:
        sys.exit(f"error: {error}")
    except (StreamingQueryException, PySparkException, Py4JError, OSError) as error:
        sys.exit(f"error: the ingest stopped: {first_line(error)}")
