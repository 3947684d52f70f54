"""The simulated air that every LoRa radio of a run uses. `ether.py` decides which radio hears a
frame, `physics.py` and `law.py` have the figures, and `server.py` is the process. `kiss_modem.py`
and `rylr998.py` are modems with a port, each a process (`modem.py`).
"""
