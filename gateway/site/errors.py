"""What is wrong with a member, or with what it says."""

from gateway.errors import OncewayError


class SiteError(OncewayError):
    """A member broke the protocol, or cannot be one. Its link ends."""
