"""Programs that connect to the gateway over TCP, in addition to the boards: `[[client]]` and
`[[subscriber]]` in a bench, each its own process. `publisher.py` publishes with paho, `strict.py`
exactly by the standard; `subscriber.py` subscribes. `hil/devices/kept.py` runs the project's own
publisher. `devices/client.py` and `devices/subscriber.py` start and record these programs in the
history. A client's publications are checked against its own journal, which names each publication
before its first byte is sent.
"""

IDENTIFIERS = 65_535
"""Number of packet identifiers that MQTT has."""
