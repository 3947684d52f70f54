"""The rig's own readers and writers of what goes over lines, sockets and the air: frames of the
reliable link (`frames.py`) and of the turn link (`turns.py`), packets of MQTT 5 (`packets.py`).

They are written from the formats (gateway/links/README.md and lora/README.md there, MQTT 5.0), and
share no code with the programs under test: a mistake that a program makes both when it writes and
when it reads would cancel out otherwise. `make lint` holds that.
"""
