"""The wire between a board's serial port and the gateway's: a process of its own, `python -m
hil.wire`, that harms what it carries.

`wire.py` moves bytes between two ports (`ports.py`) over two lines (`line.py`), one for each
direction. What stands for the whole run is weather (`weather.py`: `noise.py`, `bursts.py`,
`fading.py`); what happens once, on command, is a strike (`strike.py`). `tap.py` reads along what
both ends send, and counts what they send again. But for wire and ports all is without I/O, and the
same seed harms the same bytes. `members.py` is a process of its own, too: the network between the
gateways of a site.
"""
