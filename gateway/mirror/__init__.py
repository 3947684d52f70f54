"""Readings of boards for programs that do not read SenML-CBOR.

In: publications of boards, as the broker accepts them. Out: readings
(`gateway/payload/readings.py`), and the last reading of each name in memory (`last.py`). The
package's only files are those of `last.py`: the last readings, their hourly counts and their
topics. `json_topics.py` and `home_assistant.py` publish.
"""
