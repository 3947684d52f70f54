"""Errors of a member, or of its messages."""

from gateway.errors import OncewayError


class SiteError(OncewayError):
    """A member broke the protocol, or cannot be a member. Its link ends."""
