"""`onceway doctor`: what is commonly wrong on a gateway, and what to do about it.

In: this machine and its configuration, read only. Out: findings, a module of checks for each part
that fails on its own: settings, machine, disk, ports, services.
"""
