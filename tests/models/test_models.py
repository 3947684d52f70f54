"""The text beside each action of a model names the function that does it: those functions are
there.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = sorted(Path(__file__).parent.glob("*.tla"))
_NAMED = re.compile(r"((?:gateway|firmware|hil)/[\w/]+\.(?:py|c)): ([\w, ]+?)(?= \(|;|\n)")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_the_functions_that_a_model_names_are_there(model: Path) -> None:
    named = [
        (file, name)
        for file, names in _NAMED.findall(model.read_text())
        for name in names.split(", ")
    ]
    assert len(named) >= 10
    for file, name in named:
        text = (ROOT / file).read_text()
        assert re.search(rf"^\s*(?:def {name}\(|[a-z][^=;]*\b{name}\()", text, re.M), (file, name)


def test_there_is_a_model() -> None:
    assert MODELS
