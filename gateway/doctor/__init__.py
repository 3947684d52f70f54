"""`onceway doctor`: common problems of a gateway, and what to do about them.

In: this machine and its configuration, read only. Out: findings. Each part that can fail on its own
has a module of checks: settings, machine, disk, ports, services, bridges, site.
"""
