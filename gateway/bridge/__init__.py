"""A bridge: another MQTT broker as a client of this gateway (README.md).

In: packets of a session of this gateway's broker, and packets of the other broker. Out: the same
packets, with the same packet identifiers, for the broker on the other side. The sessions at both
brokers are the state; the bridge itself stores nothing of a message.
"""
