"""Notifications to people: one when a problem begins, and one when it ends.

In: the problems of the gateway and its boards, checked once a second. Out: messages to a command,
to a webhook or by e-mail; and a heartbeat that stops when the gateway does.
"""
