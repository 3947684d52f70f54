"""Problems with copies of spools, as sentences for users."""

from typing import Any


def copies_problems(copies: dict[str, Any]) -> list[str]:
    """Return the problems with replicas. copies: the figures of
    `gateway/site/wiring/replicas.py`.
    """
    found = []
    if copies.get("copies_refusing"):
        found.append("no other member accepts copies: readings are refused (site.copies)")
    elif copies.get("copies_behind") and copies["copies_at"] is None:
        behind = copies["copies_behind"]
        found.append(f"messages on this disk only, without a copy: {behind:,} (site.copies)")
    if copies.get("copies_full"):
        found.append("there is no room for copies of other members (site.copies_bytes, the disk)")
    if damaged := copies.get("copies_damaged"):
        found.append(
            f"the disk has corrupted copies of other members' messages: {damaged:,} do not land,"
            " and stay in the table copy_damaged of DATA/copies.db (the log names them)"
        )
    return found
