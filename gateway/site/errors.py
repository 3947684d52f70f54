"""What another member, or a file of the site, did wrong: one sentence for people."""

from gateway.errors import OncewayError


class SiteError(OncewayError):
    """Ends the link to the member that caused it; the rest of the site goes on."""
