"""Find the programs that this tree starts: in its Python modules, shell scripts and Makefiles.

In: a file, which is only read. Out: the names of programs that it starts. A name that is computed
at run time is found only if its parts are constants of the same module.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_STARTS = {
    *("run", "Popen", "call", "check_call", "check_output", "which"),
    *("create_subprocess_exec", "execv", "execve", "execvp", "execvpe"),
}
_PROGRAM = re.compile(r"(?:/usr/s?bin/|/s?bin/)?([A-Za-z][A-Za-z0-9+._-]*)")
HIDDEN = re.compile(
    r"\bos\.(?:system|popen|spawn\w+|posix_spawnp?)\(|\bget(?:status)?output\(|_subprocess_shell\("
)
"""Ways to start a program that this module does not find, so no Python module may use them."""
_LAUNCHERS = {"sudo", "nice", "timeout", "env", "strace", "xargs", "setsid", "stdbuf", "nohup"}
"""Programs that start another program: their first argument that is not an option, a number or an
assignment.
"""
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_STARTING = re.compile(r"\bsubprocess\b|create_subprocess_exec|\bwhich\(|\bos\.exec")
_SHELL_WORDS = re.compile(
    r"[.:[{}!]|break|case|cd|command|continue|do|done|echo|elif|else|esac|eval|exec|exit|export"
    r"|false|fi|for|function|getopts|if|in|kill|local|printf|pwd|read|return|set|shift|test|then"
    r"|time|trap|true|type|ulimit|umask|unset|until|wait|while"
)
_BEFORE_A_COMMAND = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "exec"}


def tree(suffixes: tuple[str, ...], *folders: str) -> list[Path]:
    """Return all files in these folders whose names end with one of the suffixes."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return sorted(path for path in found if path.name.endswith(suffixes))


class Module:
    """A Python file. wrappers: its functions that start their first argument as a program."""

    def __init__(self, text: str) -> None:
        self._nodes = list(ast.walk(ast.parse(text)))
        self._values: dict[str, list[ast.expr]] = {}
        self._returns: dict[str, list[ast.expr]] = {}
        for node in self._nodes:
            self._note(node)
        self.wrappers = {
            node.name
            for node in self._nodes
            if isinstance(node, _FUNCTION) and self._forwards(node)
        }
        self.imports = {
            alias.name
            for node in self._nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        self.classes = {
            node.name: self.wrappers
            & {part.name for part in node.body if isinstance(part, _FUNCTION)}
            for node in self._nodes
            if isinstance(node, ast.ClassDef)
        }

    def _note(self, node: ast.AST) -> None:
        """Note the values that a name may have, and those that a function returns."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._values.setdefault(name, []).append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name):
                        self._values.setdefault(target.id, []).append(value)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                returns = (part for part in ast.walk(node) if isinstance(part, ast.Return))
                values = [part.value for part in returns if part.value is not None]
                self._returns.setdefault(name, []).extend(values)
            case ast.For(target=ast.Name(id=name), iter=over):
                self._values.setdefault(name, []).extend(_members(over))
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str(name)), ast.List(elts=values), *_],
            ):
                self._values.setdefault(name, []).extend(values)

    def _forwards(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        arguments = function.args
        names = [part.arg for part in arguments.args if part.arg not in ("self", "cls")][:1]
        if arguments.vararg and not names:
            names = [arguments.vararg.arg]
        return any(
            _first_name(first) in names
            for call in _calls(ast.walk(function), _STARTS)
            for first in call
        )

    def programs(self, wrappers: set[str]) -> set[str]:
        """Return the programs that the file starts. wrappers: functions of other files that start
        programs.
        """
        names = _STARTS | self.wrappers | wrappers
        found: set[str] = set()
        for firsts in _calls(self._nodes, names):
            for first in firsts:
                found |= set(self._named(first, 3))
        return found

    def _named(self, value: ast.expr, depth: int) -> Iterator[str]:
        match value:
            case ast.Constant(value=str(word)):
                if found := _PROGRAM.fullmatch(word.partition(" ")[0]):
                    yield found[1]
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                yield from self._named(first, depth)
                words = [
                    str(word.value) if isinstance(word, ast.Constant) else "-"
                    for word in value.elts
                ]
                if words[0] in _LAUNCHERS:
                    yield from launched(words)
                if _shell(value.elts):
                    yield from shell_programs(_text(value.elts[2]))
            case ast.Starred(value=inner) | ast.BinOp(left=inner, op=ast.Add()):
                yield from self._named(inner, depth)
            case ast.IfExp(body=first, orelse=second) | ast.BoolOp(values=[first, second]):
                yield from self._named(first, depth)
                yield from self._named(second, depth)
            case ast.Call(func=ast.Attribute(value=inner, attr="split"), args=args):
                yield from self._named(args[0] if args else inner, depth)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if depth:
                for returned in self._returns.get(name, []):
                    yield from self._named(returned, depth - 1)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name) if depth:
                for assigned in self._values.get(name, []):
                    yield from self._named(assigned, depth - 1)


def _shell(words: list[ast.expr]) -> bool:
    values = [_text(word) for word in words[:2]]
    return len(words) > 2 and values[0] in ("sh", "/bin/sh", "bash") and values[1] == "-c"


def _text(value: ast.expr) -> str:
    """Return a string constant. A dash replaces each part that is known only at run time."""
    match value:
        case ast.Constant(value=text):
            return str(text)
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
    return "-"


def _members(value: ast.expr) -> list[ast.expr]:
    """Return the items of a list, tuple or dict that is written in the code."""
    match value:
        case ast.List(elts=values) | ast.Tuple(elts=values):
            return values
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
    return []


def _calls(nodes: Iterable[ast.AST], names: set[str]) -> Iterator[list[ast.expr]]:
    """Yield a list for each call of a function with one of these names. The list has the first
    argument, or if the call uses a shell, one tuple of all arguments.
    """
    for node in nodes:
        if isinstance(node, ast.Call) and not node.args:
            node.args = [word.value for word in node.keywords if word.arg == "args"]
        if isinstance(node, ast.Call) and node.args:
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            if isinstance(function, ast.Name):
                name = function.id
            if name in names:
                shell = ast.Tuple(elts=list(node.args), ctx=ast.Load())
                yield [shell if _shell(node.args) else node.args[0]]


def _first_name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name):
            return name
        case ast.Starred(value=inner):
            return _first_name(inner)
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return _first_name(first)
    return ""


def python_programs(paths: list[Path]) -> dict[str, set[Path]]:
    """Return the programs that Python files start, each with the files."""
    texts = {path: path.read_text() for path in paths}
    modules = {path: Module(text) for path, text in texts.items() if _STARTING.search(text)}
    offered: dict[str, set[str]] = {}
    """For the name of a function or class that other modules may import: its functions or methods
    that start a program.
    """
    for module in modules.values():
        for name in module.wrappers - {"main"}:
            offered.setdefault(name, set()).add(name)
        for name, methods in module.classes.items():
            offered.setdefault(name, set()).update(methods)
    imports = re.compile(rf"\b(?:{'|'.join(name for name in offered if offered[name])})\b")
    for path, text in texts.items():
        if path not in modules and imports.search(text):
            modules[path] = Module(text)
    found: dict[str, set[Path]] = {}
    for path, module in modules.items():
        wrappers = set().union(*(offered.get(name, set()) for name in module.imports))
        for program in module.programs(wrappers):
            found.setdefault(program, set()).add(path)
    return found


def shell_programs(text: str) -> set[str]:
    """Return the programs that a shell script starts."""
    text = re.sub(r"<<-?'?(\w+)'?\n.*?\n\1\n", "\n", text, flags=re.DOTALL)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"(?m)(^|\s)#.*$", "", text)
    inside: list[str] = []

    def quoted(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            inside.extend(re.findall(r"\$\(([^()]*)\)", found[0]))
        return "_"

    text = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", quoted, text)
    text = re.sub(r"\$?\(\(.*?\)\)", "_", text)  # arithmetic
    functions = set(re.findall(r"(?m)^\s*(\w+)\(\)", text))
    text = re.sub(r"(?m)^\s*[\w*?.| :-]+\)", "", text)  # a pattern of `case`
    found: set[str] = set()
    for command in re.split(r"\$\(|[`;\n|&()]", "\n".join([text, *inside])):
        words = command.split()
        while words and (words[0] in _BEFORE_A_COMMAND or re.match(r"\w+=", words[0])):
            words.pop(0)
        word = words[0].lstrip("@-") if words else ""
        if (name := _PROGRAM.fullmatch(word)) and not _SHELL_WORDS.fullmatch(word):
            found.add(name[1])
            found |= launched(words)
    return found - functions


def launched(words: list[str]) -> set[str]:
    """Return the programs that a command starts through another program, such as `sudo` or `find
    -exec`.
    """
    found: set[str] = set()
    launches = words[:1] and words[0].lstrip("@-") in _LAUNCHERS
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] in ("-exec", "-execdir", "-ok"):
            launches = True
        if launches and not re.match(r"[-+\d_$]|\w+=", word):
            launches = word in _LAUNCHERS
            if name := _PROGRAM.fullmatch(word):
                found.add(name[1])
    return found


def makefile_programs(text: str) -> set[str]:
    """Return the programs in the recipes of a Makefile and in its $(shell …)."""
    text = re.sub(r"\\\n", " ", text)
    recipes = [line[1:] for line in text.splitlines() if line.startswith("\t")]
    recipes += re.findall(r"\$\(shell ([^)]*)\)", text)
    found: set[str] = set()
    for line in recipes:
        line = line.replace("$(MAKE)", "make").replace("$(CC)", "cc")
        line = re.sub(r"\$\(\w[^()]*(\([^()]*\)[^()]*)*\)", "_", line)
        found |= shell_programs(line.replace("$$", "$"))
    return found
