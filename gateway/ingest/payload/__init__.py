"""Decoding of payloads.

In: payloads as bytes. Out: SenML records as Arrow columns. Payloads of the same form are decoded
thousands at once, all others one by one by `gateway.payload.senml`. The package does not import
Spark.
"""
