"""`onceway doctor`: common problems of a gateway, and what to do about them.

In: this machine and its configuration, read only. Out: findings, a module of checks for each part
that fails on its own: settings, machine, disk, ports, services.
"""
