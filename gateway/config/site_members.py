"""The list of members that a site's first gateway has signed.

In: a configuration, and the list's file in the site's folder. Out: the same configuration, in which
the members of the list replace those of `[site.members]`. The signature was checked before the file
was written (`gateway/site/pki/member_list.py`), and only the gateway's account may write the file.
"""

import json

from gateway.config.sections import Config, SiteSection

FILE = "members.json"


def follow(config: Config) -> bool:
    """Put the members of the signed list into `config`, if the list exists and names this gateway.
    Return whether this has changed the members.
    """
    if config.site is None:
        return False
    try:
        found = json.loads((config.site_folder / FILE).read_bytes())["members"]
        members = SiteSection(members=found).members
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    known = config.site.members
    if config.gateway.name not in members or members == known:
        return False
    known.clear()
    known.update(members)
    return True


def unlike(config: Config) -> str | None:
    """Return a sentence with the differences between `[site.members]` in the configuration file and
    the signed list. Return None if there are no differences, or no site.
    """
    if config.site is None:
        return None
    file, listed = config.site.written, config.site.members
    parts = [
        *(f"{name} is only in the list" for name in listed if name not in file),
        *(f"{name} is only in the file" for name in file if name not in listed),
        *(
            f"the file has {name} at {at}, and the list has it at {listed[name]}"
            for name, at in file.items()
            if listed.get(name, at) != at
        ),
    ]
    if not parts:
        return None
    return (
        "[site.members] in the configuration file differs from the list that the site's first"
        f" gateway has signed: {', '.join(parts)}. The gateway uses the signed list"
    )
