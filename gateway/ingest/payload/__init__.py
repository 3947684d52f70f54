"""What payloads say.

In: payloads as bytes. Out: SenML records, one by one or thousands at once as Arrow columns. Imports
nothing of Spark.
"""
