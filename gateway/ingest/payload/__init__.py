"""What payloads say.

In: payloads as bytes. Out: SenML records, thousands at once, as Arrow columns; those that are not
alike come from `gateway.payload.senml`, one by one. Imports nothing of Spark.
"""
