"""Checks of keys that depend on each other, if other keys of the same section are wrong.

In: the values of a file, and the key paths of its wrong values. Out: the failed checks.

pydantic runs the checks of a section only if each key by itself is valid, and ends at the first
failed check. This module runs each check by itself on the keys that are valid. A check that reads a
wrong key is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError, create_model

from gateway.config.lines import Place


class Misfit(ValueError):
    """Error: values of a section do not fit together. place: path, within the section, of the key
    to change.
    """

    def __init__(self, text: str, *place: int | str) -> None:
        super().__init__(text)
        self.place = place


class _Unknown(Exception):
    """Error: a check reads a key whose value is wrong, so the check cannot run."""


class _Right:
    """The stand-in for a section while one of its checks runs. It has only the section's valid
    keys. If the check reads another key, it raises _Unknown. part: the valid keys. whole: whether
    all keys of the section are valid.
    """

    def __init__(self, section: type[BaseModel], part: BaseModel, *, whole: bool) -> None:
        self._section = section
        self._part = part
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        if name in type(self._part).model_fields or (name == "model_fields_set" and self._whole):
            return getattr(self._part, name)
        known = getattr(self._section, name, None)
        if not isinstance(known, property) or known.fget is None or name == "model_fields_set":
            raise _Unknown(name)
        return known.fget(self)


def failed_checks(
    section: type[BaseModel], values: Any, wrong: Collection[Place], place: Place = ()
) -> Iterator[tuple[Place, ValueError]]:
    """Yield the key path and the error of each failed check of a section and of the sections in it.
    wrong: key paths of the values that are known to be wrong. place: key path of the section.
    """
    if not isinstance(values, dict):
        return
    for name, field in section.model_fields.items():
        inner = model_of(field.annotation)
        found = values.get(name)
        if inner is None or found is None:
            continue
        rows = enumerate(found) if isinstance(found, list) else [(None, found)]
        for number, row in rows:
            at = (*place, name) if number is None else (*place, name, number)
            yield from failed_checks(inner, row, wrong, at)
    bad = {at[len(place)] for at in wrong if at[: len(place)] == place and len(at) > len(place)}
    right = {
        name: (field.annotation, field)
        for name, field in section.model_fields.items()
        if name not in bad
    }
    try:
        made: Any = create_model("Right", __config__=section.model_config, **right)  # type: ignore[call-overload]
        part = made.model_validate({key: values[key] for key in right.keys() & values.keys()})
    except ValidationError:
        return
    shown = _Right(section, part, whole=not bad)
    for check in section.__pydantic_decorators__.model_validators.values():
        if check.info.mode != "after":
            continue
        try:
            check.func(shown)
        except _Unknown:
            continue
        except ValueError as error:
            yield place, error


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section class in an annotation such as `PageSection | None` or `list[AclSection]`,
    or None.
    """
    kinds: Sequence[Any] = [annotation, *get_args(annotation)]
    kinds = [*kinds, *(part for kind in kinds for part in get_args(kind))]
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
    )
