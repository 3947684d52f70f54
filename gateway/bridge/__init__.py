"""A bridge: another MQTT broker as a client of this gateway (README.md).

In: packets of a session of our broker, and packets of the other broker. Out: the same packets, with
the same packet identifiers, on the other side. The sessions at both brokers are the state; the
bridge itself stores nothing of a message.
"""
