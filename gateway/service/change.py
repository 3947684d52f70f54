"""Finds the changes of a configuration that take effect only after a restart. In: the configuration
in force and a new one. Out: the keys that wait for a restart.
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
"""Sections that take effect at a reload. Of [uplink], the gateway only sees whether the section
exists: the uplink itself reads the keys when it starts.
"""


def needs_restart(old: Config, new: Config) -> list[str]:
    """Return changed keys that take effect only at the next start, such as `gateway.data`."""
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
