"""Programs that come to the gateway over TCP, beside the boards: `[[client]]` and `[[subscriber]]`
in a bench, each a process of its own.

`publisher.py` publishes with paho, `strict.py` by the letter of the standard; `subscriber.py`
subscribes. `devices/client.py` and `devices/subscriber.py` start them and enter in the history what
they say of themselves. The truth about a client's publications is its own journal: each is told
before the first byte of it leaves.
"""
