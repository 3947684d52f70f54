"""The landing place, from the centre's side.

In: a landing URL (`gateway/uplink/README.md`). Out: feeds, their readable range, and checked
batches as Arrow tables. Read only; does not import Spark.
"""
