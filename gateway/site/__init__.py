"""The gateways of one site: where a client's session is, and how it moves (README.md).

In: frames of other members, the questions of this gateway's broker, the time. Out: frames for
members, changes of what this gateway holds (`holder.py`), answers for the broker. Without I/O but
for `net.py`.
"""
