"""Readings of boards for programs that do not read SenML-CBOR.

In: publications of boards, as they are taken. Out: readings (`gateway/payload/readings.py`), and
the last one of each name in memory (`last.py`). No I/O here but the file of the last values; topics
are `gateway/mirror/json_topics.py`'s.
"""
