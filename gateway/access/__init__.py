"""Rights of clients: users and passwords, certificates, hooks, client identifiers, and the rules of
[[acl]].

In: a CONNECT, and the configuration section of its listener; a topic. Out: the user, or a reason to
refuse. The broker asks `rules.py`; the other files decide who may connect.
"""
