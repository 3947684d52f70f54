"""JSON from a file or another machine, checked. In: bytes. Out: a model, or a sentence with the
error. The sentence contains no values, because some are secrets.
"""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.site.errors import SiteError

Model = TypeVar("Model", bound=BaseModel)


def parse(kind: type[Model], data: bytes, most: int) -> Model:
    """Parse JSON as a model. most: length of the longest valid JSON, in bytes. Raises SiteError."""
    if len(data) > most:
        raise SiteError(f"longer than {most} bytes")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        text = first["msg"] if first["type"] == "json_invalid" else f"{where}: {first['msg']}"
        raise SiteError(text[:200]) from None
