"""The Spark jobs: the stream, and the upkeep jobs.

In: command lines, from spark-submit. Out: changed tables, log lines, an exit code.
"""
