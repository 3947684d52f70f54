"""The gateway: what runs on the Pi (broker, links, store, uplink) and the Spark job at its far end
(ingest).
"""

__version__ = "0.2.1"
