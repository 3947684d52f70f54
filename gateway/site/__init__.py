"""The gateways of one site: where a client's session is, how it moves, and what passes between them
for subscribers (README.md).

In: frames of other members, the questions of this gateway's broker, the time. Out: frames for
members, changes of what this gateway holds (`rules/holder.py`), answers for the broker. Without I/O
but for `links/net.py`.
"""
