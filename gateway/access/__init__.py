"""Logins of clients: users and passwords, certificates, hooks and client identifiers. In: a CONNECT
and the listener's section. Out: the user, or a reason to refuse.
"""
