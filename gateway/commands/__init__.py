"""What all commands share: the console script `onceway`, options, passphrases, and the client's
half of a running gateway's control socket. Each feature brings its own commands (`cli.py`).
"""
