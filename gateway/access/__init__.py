"""Logins of clients: users and passwords, certificates, hooks and client identifiers. In: a CONNECT
and the listener's section. Out: who the client is, or why it is refused.
"""
