"""The gateways of one site: where a client's session is, how it moves, and the messages forwarded
between gateways (README.md).

In: frames of other members, the session lookups of this gateway's broker, the time. Out: frames for
members, changes of this gateway's records (`rules/holder.py`), answers for the broker. Only
`links/net.py` does I/O.
"""
