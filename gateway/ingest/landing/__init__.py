"""The landing place, from the centre's side.

In: a landing URL (`gateway/uplink/README.md`). Out: feeds, the numbers of their batches, and
checked batches as Arrow tables. The package does not import Spark.
"""
