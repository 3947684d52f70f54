"""Programs that publish over TCP, beside the boards: `[[client]]` in a bench.

`__main__.py` is such a program, a process of its own; `client.py` starts it and enters in the
history what it says of itself. The truth about its publications is its own journal: each is told
before the first byte of it leaves.
"""
