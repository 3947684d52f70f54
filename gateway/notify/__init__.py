"""Notifications to people: one message when a problem begins, and another when it ends.

In: the problems of the gateway and its boards, checked once a second. Out: messages to a command,
to a webhook or by e-mail; and a heartbeat that stops when the gateway stops.
"""
