"""The gateway as a process: configuration, store, broker and links put together; `onceway gateway
…`.

gateway.py         start, reload and stop, in their order; change.py what a reload may change
watchdog.py        systemd learns while all of it makes progress
engine.py          the broker on an event loop; clock.py its time
listeners.py       where it can be reached; access.py, users.py who a client is; logins.py
                   passwords, fairly; devices.py which boards may greet
outside.py         how it is looked at: control.py for people on this machine, gateway/web for
                   others
cli.py             what people type, with session_cli.py, retained_cli.py, users_cli.py
"""
