"""The uplink: cuts rows of the spool into numbered, immutable batches and lands them at a landing
URL.

In: rows of the table `spool` (`gateway/store/README.md`). Out: Parquet files and manifests
(README.md beside this file).
"""
