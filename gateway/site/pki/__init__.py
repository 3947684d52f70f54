"""Certificates of a site: its authority, invitations, joining members and removed members."""
