"""The ether: every LoRa radio of a run is in it.

`ether.py` decides who hears what, `physics.py` and `law.py` know the figures, `server.py` is the
process. `kiss_modem.py` is a KISS modem with a port, as a process of its own.
"""
