"""Payloads of boards: SenML in CBOR or JSON in, readings out. The gateway and the ingest share this
code.
"""
