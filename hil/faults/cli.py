"""`onceway hil faults`: the possible `[[fault]]` tables. In: the kinds of faults with which a bench
is checked. Out: effect and keys of each kind, by the part that it breaks.
"""

import inspect
import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import typer

from gateway.commands.options import JsonOption
from hil.faults import KINDS, Kind
from hil.faults.base import OF_ONE_GATEWAY, Unit

HAVE_ON = ("board", "line", "client", *OF_ONE_GATEWAY)
"""Parts of the system that may exist several times: a bench selects some with the key `on`."""
OURS = {"kind", "table", "drawn"}
"""Keys that the list leaves out: the bench sets them, or they name the kind."""


def list_faults(as_json: JsonOption = False) -> None:
    """List the kinds of faults by the part that they break, with the effect and keys of each.

    Example: onceway hil faults | less
    """
    harms = list(dict.fromkeys(kind.part for kind in KINDS.values()))
    kinds = {
        part: {n: _description(k) for n, k in KINDS.items() if k.part == part} for part in harms
    }
    typer.echo(json.dumps(kinds, indent=1) if as_json else "\n".join(_lines(kinds)))


def _description(kind: type[Kind]) -> dict[str, Any]:
    keys = [_key(kind, name) for name in kind.model_fields if name not in OURS | kind.useless()]
    if kind.part not in HAVE_ON and kind.breaks is Kind.breaks:
        keys = [key for key in keys if key["key"] != "on"]  # `on` is not allowed for this part
    return {"does": f"{kind.text}. {' '.join((inspect.getdoc(kind) or '').split())}", "keys": keys}


def _key(kind: type[Kind], name: str) -> dict[str, Any]:
    field = kind.model_fields[name]
    unit = next((one.name for one in field.metadata if isinstance(one, Unit)), None)
    needed = field.is_required()
    return {
        "key": name,
        "unit": unit,
        "values": get_args(field.annotation) if get_origin(field.annotation) is Literal else None,
        "needed": needed,
        "default": None if needed else field.default,
        "meaning": _meaning(kind, name),
    }


def _meaning(kind: type[Kind], name: str) -> str:
    """Return the meaning of a key from the nearest base class that has a text for the key. A class
    that only changes the key's default has no text.
    """
    for base in kind.__mro__:
        field = getattr(base, "model_fields", {}).get(name)
        if field is not None and field.description:
            return " ".join(str(field.description).split())
    raise LookupError(f"{kind.__name__} says nothing of its key {name}")


def _lines(faults: dict[str, dict[str, Any]]) -> Iterator[str]:
    for part, kinds in faults.items():
        yield f"{part.upper()}"
        for name, one in kinds.items():
            yield f"\n  {name}: {one['does']}"
            for key in one["keys"]:
                default = "needed" if key["needed"] else f"= {json.dumps(key['default'])}"
                unit = f" ({key['unit']})" if key["unit"] else ""
                values = f" One of {', '.join(key['values'])}." if key["values"] else ""
                yield f"      {key['key']} {default}{unit}: {key['meaning']}{values}"
        yield ""
