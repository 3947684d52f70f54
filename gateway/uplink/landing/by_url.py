"""Opening of landing places. In: a URL. Out: the matching kind of place."""

from typing import Any

from gateway.commands.extras import how_to_get
from gateway.errors import OncewayError
from gateway.uplink.landing.base import Landing, Unreachable, without_password


def open_landing(url: str, options: dict[str, Any] | None = None, shared: bool = True) -> Landing:
    """Open a landing place by its URL. options: passed to the fsspec file system (credentials,
    endpoint). shared: see `Landing`. Each kind is imported only if it is used: an uplink to a
    folder needs neither SSH nor S3. Raises Unreachable if the place cannot be reached now,
    OncewayError if the URL can never work.
    """
    scheme = url.split("://")[0] if "://" in url else "file"
    try:
        if scheme in ("file", "local"):
            from gateway.uplink.landing.local import LocalLanding

            return LocalLanding(url, shared)
        if scheme in ("sftp", "ssh"):
            from gateway.uplink.landing.sftp import SftpLanding

            return SftpLanding(url, options or {}, shared)
        if scheme in ("s3", "s3a"):
            from gateway.uplink.landing.s3 import S3Landing

            return S3Landing(url, options or {}, shared)
        from gateway.uplink.landing.generic import GenericLanding

        return GenericLanding(url, options or {}, shared)
    except Unreachable as error:
        if isinstance(error.__cause__, TypeError):
            text = f"the landing URL or [uplink.options] has an unknown option: {error.__cause__}"
            raise OncewayError(text, without_password(url)) from error
        raise
    except ImportError as error:
        extra = {"sftp": "sftp", "ssh": "sftp", "s3": "s3", "s3a": "s3"}.get(scheme)
        hint = how_to_get(extra) if extra else None
        raise OncewayError(
            f"this landing URL needs a Python package: {error}", without_password(url), hint
        ) from error
