"""The landing place as the centre reads it.

In: a landing URL (`gateway/uplink/README.md`). Out: feeds, how far each can be read, and checked
batches as Arrow tables. Read only; imports nothing of Spark.
"""
