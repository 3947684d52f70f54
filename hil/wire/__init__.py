"""The wire between a board's serial port and the gateway's: a separate process, `python -m
hil.wire`, that harms the bytes it carries.

`wire.py` moves bytes between two ports (`ports.py`) over two lines (`line.py`), one for each
direction. Faults of the whole run are weather (`weather.py`: `noise.py`, `bursts.py`, `fading.py`);
a single fault, on command, is a strike (`strike.py`). `tap.py` reads the bytes of both ends, and
counts repeated frames. Only `wire.py` and `ports.py` do I/O. The same seed harms the same bytes.
`members.py` is a process of its own, too: the network between the gateways of a site.
"""
