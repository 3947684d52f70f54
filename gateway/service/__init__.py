"""The gateway as a process: puts the packages together for `onceway gateway …`.

gateway.py         start, reload and stop, in their order; change.py what a reload may change
listeners.py       the listeners, serial ports and radios of the configuration
management.py      the management endpoints: control.py for people on this machine, gateway/web for
                   others
cli.py             `onceway gateway`; session_cli.py, retained_cli.py its other commands
"""
