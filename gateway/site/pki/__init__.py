"""Certificates of a site: its authority, invitations, members that join and members that are
removed.
"""
