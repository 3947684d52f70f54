"""The code that all commands share: the console script `onceway`, options, passphrases, and the
client side of a running gateway's control socket. Each feature brings its own commands (`cli.py`).
"""
