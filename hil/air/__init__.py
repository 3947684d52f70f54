"""The ether: every LoRa radio of a run is in it.

`ether.py` decides who hears what, `physics.py` and `law.py` know the figures, `server.py` is the
process. `kiss_modem.py` and `rylr998.py` are modems with a port, each a process (`modem.py`).
"""
