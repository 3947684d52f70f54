"""Each mutant differs from the source in one place, and never in a text on which no test should
depend.
"""

import ast

from tests.mutants.mutate import of_c, of_python

SOURCE = '''
"""Docstring 1."""
LIMIT: int = 3

def take(one: int, other: int = 2) -> bool:
    """Docstring."""
    log.info("taken %d", 5)
    if one < other and not one:
        other.forget(one, LIMIT)
        raise ValueError("more than 7")
    return one + max(one, other) == 4
'''
IN_C = """
/* if (a < 1) */
#define ONE 1
int take(int one)
{
    if (one < 2 && !one) {
        forget(one);
    }
    return one == 3;
}
"""


def test_each_operator_of_python_is_changed_once() -> None:
    mutants = list(of_python(SOURCE))
    assert sorted((one.line, one.change) for one in mutants) == [
        (3, "3 is 4"),
        (5, "2 is 3"),
        (8, "`<` is `<=`"),
        (8, "`and` is `or`"),
        (8, "the condition is reversed"),
        (9, "the call is left out"),
        (9, "two arguments have changed places"),
        (11, "4 is 5"),
        (11, "`+` is `-`"),
        (11, "`==` is `!=`"),
        (11, "the result is None"),
    ]


def test_each_mutant_of_python_is_a_program_and_another_one() -> None:
    texts = [one.text for one in of_python(SOURCE)]
    assert len({ast.dump(ast.parse(text)) for text in [*texts, SOURCE]}) == len(texts) + 1


def test_each_operator_of_c_is_changed_once() -> None:
    mutants = [(one.line, one.change) for one in of_c(IN_C)]
    assert sorted(mutants) == [
        (6, "`!` is left out"),
        (6, "`&&` is `||`"),
        (6, "`<` is `<=`"),
        (6, "a number is one more"),
        (7, "the call is left out"),
        (9, "`==` is `!=`"),
        (9, "a number is one more"),
    ]
