"""Decoding of payloads.

In: payloads as bytes. Out: SenML records as Arrow columns. Payloads of the same form are decoded
together, thousands at a time. All other payloads are decoded one by one (`gateway.payload.senml`).
The package does not import Spark.
"""
