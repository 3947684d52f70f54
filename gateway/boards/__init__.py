"""Boards at a gateway: admission, status reports, logs, commands, conflicting payloads, and the
bundled firmware.
"""
