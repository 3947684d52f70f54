"""Logins of clients: users and passwords, certificates, hooks and client identifiers.

In: a CONNECT, and the configuration section of its listener. Out: the user, or a reason to refuse.
"""
