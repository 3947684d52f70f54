"""What publications of boards say: SenML in CBOR or JSON in, readings out. The gateway and the
ingest read payloads by the same code.
"""
