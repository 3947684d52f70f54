"""Notifications: people are told once when a problem begins and once when it ends.

In: the problems of the gateway and its boards, looked at each second. Out: messages to a command, a
webhook or by e-mail; and a heartbeat that stops with the gateway.
"""
