"""Decoding of payloads.

In: payloads as bytes. Out: SenML records, thousands at once, as Arrow columns; irregular ones come
from `gateway.payload.senml`, one by one. Does not import Spark.
"""
