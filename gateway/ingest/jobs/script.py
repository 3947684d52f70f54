"""Start and end of the ingest's Spark jobs. In: the function of a job. Out: its log on standard
error, and an exit code.
"""

import logging
import signal
import sys
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from gateway.errors import OncewayError
from gateway.ingest.delta.causes import explained, is_java_gone
from gateway.ingest.log_lines import to_stderr

log = logging.getLogger("onceway.ingest")

STOPS = (OncewayError, StreamingQueryException, PySparkException, Py4JError, OSError, MemoryError)
"""Exceptions for which a job ends with one line about the reason. Any other exception is logged
with its traceback, too.
"""


def run_script(job: Callable[[], int | None]) -> None:
    """Run a job and exit. Exit code: the result of `job`, 0 if None; 2 for a wrong command line,
    130 after Ctrl-C, 1 and a line with the reason for all other errors.
    """
    to_stderr("%(asctime)s %(message)s", logging.WARNING)
    logging.getLogger("onceway.ingest").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_py4j_noise)
    try:
        code = job()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        say_unexpected(error)
        sys.exit(f"error: {explained(error)}")
    if code:
        sys.exit(code)


def say_unexpected(error: Exception) -> None:
    """Log the traceback of an error, unless the error is one of `STOPS`."""
    if not isinstance(error, STOPS):
        log.error("an unexpected error", exc_info=error)


def _is_not_py4j_noise(record: logging.LogRecord) -> bool:
    """Whether to log a record. Records about a Java process that has ended are dropped, because
    each thread would log one.
    """
    error = record.exc_info[1] if record.exc_info else None
    return error is None or not is_java_gone(error)
