"""The rig's own readers and writers of the formats on lines, sockets and air: frames of the
reliable link (`frames.py`) and of the turn link (`turns.py`), packets of MQTT 5 (`packets.py`). The
modules follow the formats (gateway/links/FORMAT.md, gateway/links/lora/FORMAT.md, MQTT 5.0), and
share no code with the programs under test (`make lint` checks this). In shared code, a mistake in
both writing and reading would stay unnoticed.
"""
