"""`onceway radio plan`: the capacity of a site's radio, before its installation."""

import json
import re
from dataclasses import asdict
from math import isinf
from typing import Annotated, Any

import typer

from gateway.commands.options import JsonOption
from gateway.errors import OncewayError
from gateway.links.lora.airtime import FACTORS
from gateway.links.lora.exchange import Radio
from gateway.links.lora.plan import Budget, Plan, Site, remedies, say
from gateway.links.lora.plan import plan as work_out
from gateway.system.regions import EU868, REGIONS

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9}) ?(s|m|min|h|d)")
_LONGEST = 7 * 86_400


class PlanNotAllowed(OncewayError):
    """Error: the law or the channel does not allow the plan."""

    exit_code = 1


class BadOption(OncewayError):
    """Error: an option has an impossible value."""

    exit_code = 2


def seconds_of(text: str) -> int:
    """Return the seconds of a time such as `10m`, which gives 600. Raises BadOption if the text is
    not a time from 1 s to 7 days.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= seconds <= _LONGEST:
        raise BadOption(
            f"--every {text!r} is not a time from 1 s to 7 d",
            hint="Write a whole number and a unit, such as 30s, 10m, 1h or 1d",
        )
    return seconds


def plan(
    sensors: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of boards at this gateway.")
    ],
    every: Annotated[
        str, typer.Option(help="Interval between two readings of a board: 30s, 10m, 1h.")
    ],
    factor: Annotated[
        int,
        typer.Option(
            "--sf",
            min=FACTORS.start,
            max=FACTORS.stop - 1,
            help="Spreading factor. Each step reaches further, and almost doubles the airtime.",
        ),
    ],
    payload: Annotated[
        int, typer.Option(min=0, max=200, help="Bytes of a reading, without the topic.")
    ] = 20,
    radio: Annotated[Radio, typer.Option(help="Kind of the gateway's radio.")] = Radio.SX127X,
    region: Annotated[str, typer.Option(help=f"One of: {', '.join(REGIONS)}.")] = EU868.name,
    mhz: Annotated[
        float | None,
        typer.Option(
            "--frequency", help="MHz of the channel.", show_default=f"{EU868.frequency / 1e6:g}"
        ),
    ] = None,
    loss: Annotated[
        float,
        typer.Option(
            min=0,
            max=90,
            help="Percentage of frames that are lost for reasons other than a collision.",
        ),
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Work out the airtime of a gateway's radio boards, their collisions, and the legal limit. Exit
    code 1: the plan cannot work. The output then gives the reasons, and plans that would work.

    Example: onceway radio plan --sensors 100 --every 10m --sf 7
    """
    if region not in REGIONS:
        raise BadOption(
            f"--region {region!r} is not known", hint=f"Use one of {', '.join(REGIONS)}"
        )
    rules = REGIONS[region]
    if radio is Radio.RYLR998 and factor > 9:
        raise PlanNotAllowed(
            f"RYLR998 has no SF{factor} at 125 kHz", hint="Use --sf 7, 8 or 9, or another radio"
        )
    if mhz is not None and not 0 < mhz < 1e5:
        raise BadOption(
            f"--frequency {mhz} is not a frequency in MHz", hint="Write it like 869.525"
        )
    frequency = rules.frequency if mhz is None else round(mhz * 1e6)
    site = Site(
        sensors, float(seconds_of(every)), factor, payload, radio, frequency, rules, loss / 100
    )
    try:
        worked_out = work_out(site)
    except ValueError as error:
        raise PlanNotAllowed(str(error), hint="Use a smaller --sf or --payload") from error
    instead = [] if worked_out.works else remedies(site)
    typer.echo(json.dumps(_fields(worked_out, instead)) if as_json else _text(worked_out))
    if not worked_out.works:
        hint = f"What would work: {'; or '.join(instead)}" if instead else None
        raise PlanNotAllowed("; ".join(worked_out.problems), hint=hint)


def _fields(plan: Plan, instead: list[str]) -> dict[str, Any]:
    """Return the figures of a plan for JSON: times in seconds, shares from 0 to 1; null in place of
    infinity. instead: texts of plans that would work.
    """
    site, cost = plan.site, plan.site.exchange
    return {
        "works": plan.works,
        "problems": plan.problems,
        "would_work": instead,
        "sensors": site.sensors,
        "every": site.every,
        "sf": site.factor,
        "payload": site.payload,
        "radio": site.radio,
        "region": site.region.name,
        "frequency": site.frequency,
        "rule": site.band.rule,
        "airtime": asdict(cost) | {"exchange": cost.airtime},
        "tries": _finite(plan.tries),
        "load": _finite(plan.load),
        "collisions": plan.collisions,
        "gateway": _budget(plan.gateway),
        "board": _budget(plan.board),
    }


def _budget(budget: Budget) -> dict[str, float | None]:
    return {
        "limit": budget.limit,
        "used": _finite(budget.used),
        "share": _finite(budget.share),
    }


def _finite(value: float) -> float | None:
    return None if isinf(value) else value


def _text(plan: Plan) -> str:
    site, cost = plan.site, plan.site.exchange
    each = f"{site.sensors} boards" if site.sensors > 1 else "1 board"
    lines = [
        f"{each}, a reading of {site.payload} bytes every {say(site.every)}, SF{site.factor},"
        f" {site.frequency / 1e6:g} MHz, {site.radio}",
        f"law         {site.band.rule}",
        f"a reading   {cost.up * 1000:.1f} ms up, {cost.down * 1000:.1f} ms down,"
        f" {cost.airtime * 1000:.1f} ms together",
    ]
    if isinf(plan.tries):
        return "\n".join([*lines, "channel     overloaded: more tries bring fewer readings"])
    return "\n".join(
        [
            *lines,
            f"channel     {plan.load:.1%} of the time in use, {plan.collisions:.1%} of the"
            f" exchanges collide, {plan.tries:.2f} tries a reading",
            f"gateway     {_say_budget(plan.gateway)}",
            f"each board  {_say_budget(plan.board)}",
        ]
    )


def _say_budget(budget: Budget) -> str:
    return (
        f"sends {budget.used:.1f} s an hour of the {budget.limit:.1f} s that are allowed:"
        f" {budget.share:.0%} of its budget"
    )
