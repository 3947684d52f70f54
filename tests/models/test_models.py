"""In each model, the text above an action names the functions of the product that do the same. The
test checks that these functions exist.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = sorted(Path(__file__).parent.glob("*.tla"))
FATE = {"Break", "Come", "Crash", "Heal"}
"""Actions of the environment: links break, clients connect, the power fails."""
GROUPS = {"Next", "Normal", "Goes", "Site", "Fate", "Client"}
"""Actions that consist of other actions."""
_NAMED = re.compile(r"((?:gateway|firmware|hil)/[\w/]+\.(?:py|c)): ([\w, ]+?)(?= \(|;|\n)")
_DEFINED = re.compile(r"^(\w+)(?:\(.*\))? ==", re.M)
_SABOTAGE = re.compile(r"\s*/\\ Broken = ")
"""The first condition of an action that only a variant broken on purpose has."""
_FUNCTION = {
    ".py": r"^ *(?:async )?def {}\(",
    ".c": r"^[a-z][\w *]*\b{}\([^;]*?\)\s*\{{",
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_functions_named_by_a_model_exist(model: Path) -> None:
    named = [
        (file, name)
        for file, names in _NAMED.findall(model.read_text())
        for name in names.split(", ")
    ]
    assert len(named) >= 10
    for file, name in named:
        defined = _FUNCTION[Path(file).suffix].format(name)
        assert re.search(defined, (ROOT / file).read_text(), re.M), (file, name)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_each_action_names_a_function(model: Path) -> None:
    pieces = _DEFINED.split(model.read_text())
    above = dict(zip(pieces[1::2], pieces[:-1:2], strict=True))
    bodies = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    mentioned = {
        word
        for group in GROUPS & bodies.keys()
        for word in re.findall(r"\w+", bodies[group].split("\n\n")[0])
    }
    actions = {
        name
        for name in mentioned & bodies.keys() - GROUPS
        if re.search("'|UNCHANGED", bodies[name]) and not _SABOTAGE.match(bodies[name])
    }
    assert len(actions) >= 8
    for action in actions - FATE:
        assert _NAMED.search(above[action].rsplit("\n\n", 1)[-1]), action


def test_models_folder_holds_a_model() -> None:
    assert MODELS
