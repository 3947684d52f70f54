"""Boards at a gateway: admission, status reports, logs, commands, payload conflicts, and the
bundled firmware.
"""
