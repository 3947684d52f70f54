"""What of a configuration may change while the gateway runs. In: the one in force and a later one.
Out: what must wait.
"""

from gateway.config import Config

CHANGEABLE = (
    "listener",
    "serial",
    "lora",
    "spool",
    "limits",
    "queue",
    "delivery",
    "access",
    "quota",
    "acl",
    "uplink",
)
"""Sections that count as soon as they are read. Of [uplink] that is whether there is one: its keys
are for another process, which reads them at its own start.
"""


def needs_restart(old: Config, new: Config) -> list[str]:
    """Keys that differ and count from the next start only, such as `gateway.data`."""
    keys = []
    for section in type(new).model_fields:
        before, after = getattr(old, section), getattr(new, section)
        changeable = section in CHANGEABLE and (section != "uplink" or None in (before, after))
        if changeable or before == after:
            continue
        if before is None or after is None or isinstance(after, list):
            keys.append(section)
        else:
            keys += [
                f"{section}.{key}"
                for key in type(after).model_fields
                if getattr(before, key) != getattr(after, key)
            ]
    return keys
