"""Start of a job that needs Java: Java starts in a thread while Python imports the job's script.

In: a script of this folder, and its options. Out: the script, run as Python would run it.
"""

import runpy
import sys
from contextlib import suppress
from threading import Thread

from pyspark import SparkContext
from pyspark.errors import PySparkException


def _start_java() -> None:
    """Start Java, or wait until it is started. Errors are ignored here: the script starts Java
    again when it needs Java, and reports the error.
    """
    with suppress(PySparkException, OSError):
        SparkContext._ensure_initialized()


if __name__ == "__main__":
    Thread(target=_start_java, daemon=True).start()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
