"""Another MQTT broker as a client of this gateway (README.md).

In: packets of a session of our broker, and packets of the other broker. Out: the same packets, with
the same packet identifiers, on the other side: both brokers' sessions are the state, and what runs
here keeps none of a message.
"""
