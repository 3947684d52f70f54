"""Spark's interface that tells a source how much to read in one micro-batch. Spark has it from
version 4.2 on; with Spark 4.1, the source decides.

In: nothing. Out: Spark's own classes, or stand-ins with the same names.
"""

try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:

    class ReadLimit:  # type: ignore[no-redef]
        """Stand-in, never created: Spark 4.1 asks for no limit."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stand-in: Spark 4.1 asks for the latest offset once, and stops at that offset."""


__all__ = ["ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
