"""Landing places: where batches go. One interface, and one file per kind of place (folder, SFTP,
S3, anything else of fsspec).

In: names below the landing URL and bytes. Out: whole files under these names, or an error; never
half a file under a final name.
"""

from gateway.uplink.landing.base import Landing, Unreachable, without_password
from gateway.uplink.landing.by_url import open_landing

__all__ = ["Landing", "Unreachable", "open_landing", "without_password"]
