"""The mutants of one source file.

In: the text of the file. Out: copies of the text with one change each. An expression gets another
comparison, constant, connective or arithmetic operator, or a condition is reversed. A statement
loses a call whose result is not used or a result, or two arguments are swapped. Docstrings,
annotations, log lines and error texts stay, because no test should depend on them.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
QUIET = ("log", "_log", "logger")
"""Names of loggers, whose calls are not changed in any mutant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file. line: number of the changed line, from 1. change: description of the change.
    text: the whole changed file.
    """

    line: int
    change: str
    text: str


def of_python(text: str) -> Iterator[Mutant]:
    tree = ast.parse(text)
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = text.encode()
    skipped = _skipped(tree)

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def put(line: int, begin: int, end: int, new: str, change: str) -> Mutant:
        return Mutant(line, change, (whole[:begin] + new.encode() + whole[end:]).decode())

    def between(one: ast.expr, other: ast.expr, old: str, new: str) -> Iterator[Mutant]:
        """Yield the mutant that replaces the operator between two operands."""
        begin, end = span(one)[1], span(other)[0]
        found = re.search(rf"(?<![\w<>=!]){re.escape(old)}(?![\w<>=])", whole[begin:end].decode())
        if found:
            here = begin + found.start()
            yield put(other.lineno, here, begin + found.end(), new, f"`{old}` is `{new}`")

    def changed(node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                if pair := COMPARISONS.get(type(operator)):
                    yield from between(left, right, *pair)
            case ast.BoolOp(op=connective, values=[one, other, *_]):
                old, new = ("and", "or") if isinstance(connective, ast.And) else ("or", "and")
                yield from between(one, other, old, new)
            case ast.BinOp(left=left, op=operator, right=right):
                if pair := ARITHMETIC.get(type(operator)):
                    yield from between(left, right, *pair)
            case ast.Constant(value=bool(value)):
                yield put(node.lineno, *span(node), str(not value), f"{value} is {not value}")
            case ast.Constant(value=int(value)):
                yield put(node.lineno, *span(node), str(value + 1), f"{value} is {value + 1}")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                begin, end = span(test)
                new = f"not ({whole[begin:end].decode()})"
                yield put(test.lineno, begin, end, new, "the condition is reversed")
            case ast.Expr(value=ast.Call()):
                yield put(node.lineno, *span(node), "None", "the call is left out")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield put(value.lineno, *span(value), "None", "the result is None")
            case ast.Call(func=ast.Name(id="max" | "min")):
                return  # the order of their arguments does not matter
            case ast.Call(args=[one, other, *_]) if not isinstance(one, ast.Starred):
                (first, end), (begin, last) = span(one), span(other)
                new = (whole[begin:last] + whole[end:begin] + whole[first:end]).decode()
                if whole[first:end] != whole[begin:last]:
                    yield put(one.lineno, first, last, new, "two arguments have changed places")

    for node in ast.walk(tree):
        if id(node) not in skipped:
            yield from changed(node)


def _skipped(tree: ast.Module) -> set[int]:
    """Return the id() of each node that must stay as it is, and of all nodes below it."""
    found: set[int] = set()

    def leave_out(node: ast.AST | None) -> None:
        if node is not None:
            found.update(id(below) for below in ast.walk(node))

    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                leave_out(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                if name in QUIET:
                    leave_out(node)
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
                leave_out(annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                leave_out(node.returns)
                for decorator in node.decorator_list:
                    leave_out(decorator)
            case ast.ClassDef():
                for decorator in node.decorator_list:
                    leave_out(decorator)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                leave_out(node)
            case ast.Raise(exc=ast.Call() as call):
                for argument in call.args:
                    leave_out(argument)
    return found


_IN_C = (
    (r"(?<![<>=!+\-])<(?![<=])", "<=", "`<` is `<=`"),
    (r"<=", "<", "`<=` is `<`"),
    (r"(?<![>\-])>(?![>=])", ">=", "`>` is `>=`"),
    (r">=", ">", "`>=` is `>`"),
    (r"==", "!=", "`==` is `!=`"),
    (r"!=", "==", "`!=` is `==`"),
    (r"&&", "||", "`&&` is `||`"),
    (r"\|\|", "&&", "`||` is `&&`"),
    (r" \+ ", " - ", "`+` is `-`"),
    (r" - ", " + ", "`-` is `+`"),
    (r" & ", " | ", "`&` is `|`"),
    (r" \| ", " & ", "`|` is `&`"),
    (r"\btrue\b", "false", "true is false"),
    (r"\bfalse\b", "true", "false is true"),
    (r"(?<=[\s(])!(?=\w)", "", "`!` is left out"),
    (r"(?<=^    )\s*\w+\([^;{}]*\);$", ";", "the call is left out"),
    (r"(?<![\w.])[0-9]+(?![\w.])", None, "a number is one more"),
)


def of_c(text: str) -> Iterator[Mutant]:
    """Yield the mutants of C code, line by line, without comments, directives and strings."""
    comment = False
    offset = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        code = line.split("/*")[0].split("//")[0] if not comment else ""
        comment = (comment or "/*" in line) and "*/" not in line.rpartition("/*")[2]
        if code.strip() and code[0] != "#" and '"' not in code:
            for pattern, new, change in _IN_C:
                for found in re.finditer(pattern, code.rstrip("\n")):
                    put = str(int(found[0]) + 1) if new is None else new
                    begin, end = offset + found.start(), offset + found.end()
                    yield Mutant(number, change, text[:begin] + put + text[end:])
        offset += len(line)
