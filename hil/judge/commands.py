"""Commands to the boards. In: what was seen in a history. Out: what is wrong with how they were
obeyed.
"""

from hil.judge.seen import Seen


def disobeyed(seen: Seen) -> list[str]:
    """Boards that have not obeyed each command once and in order, told; a run that broke off proves
    nothing of what is missing.
    """
    whole = seen.ended and not seen.deaths and not seen.broken
    told = []
    for device in sorted(seen.commands.keys() | seen.obeyed.keys()):
        sent, obeyed = (
            [interval for _, interval in sorted(events[device])]
            for events in (seen.commands, seen.obeyed)
        )
        if obeyed != sent and (whole or obeyed != sent[: len(obeyed)]):
            told.append(
                f"{device} was told the intervals {_numbers(sent)} and obeyed {_numbers(obeyed)}"
            )
    return told


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"
