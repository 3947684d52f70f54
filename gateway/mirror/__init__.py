"""Readings of boards for programs that do not read SenML-CBOR.

In: publications of boards, as the broker accepts them. Out: readings
(`gateway/payload/readings.py`), and the last one of each name in memory (`last.py`). The file of
the last values is the only I/O here; `gateway/mirror/json_topics.py` writes topics.
"""
