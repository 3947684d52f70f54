"""The gateway: the programs on the Pi (broker, links, store, uplink), and the Spark job at the
centre (ingest).
"""

__version__ = "0.2.1"
