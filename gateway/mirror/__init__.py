"""Readings of boards for programs that do not read SenML-CBOR.

In: publications of boards, as the broker accepts them. Out: readings
(`gateway/payload/readings.py`), and the last reading of each name in memory (`last.py`). The file
of the last values is the package's only I/O; `gateway/mirror/json_topics.py` publishes.
"""
