"""The gateway: the programs on the Pi, and the Spark job at the centre (ingest)."""

__version__ = "0.2.1"
