"""The ingest's report on itself.

In: counts of each micro-batch; the landing place and the tables, read without Spark. Out: `onceway
ingest report`.
"""
