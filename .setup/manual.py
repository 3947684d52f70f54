"""Manual pages from the code. In: the commands and the configuration's keys. Out: the text of
onceway(1) and gateway.toml(5), in the markup of man(7).
"""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points

import click
import typer

from gateway.commands.exit_codes import MEANINGS
from gateway.config.reference import entries

_TITLE = '.TH {title} {section} "" "onceway {version}" "Onceway"\n'

_ENVIRONMENT = (
    ("ONCEWAY_CONFIG", "The configuration file, in place of /etc/onceway/gateway.toml."),
    ("ONCEWAY_REGISTRY", "The device registry, in place of the gateway's."),
    ("ONCEWAY_PASSPHRASE", "The passphrase of a backup."),
)


_JSON = """\
With --json a command prints one JSON document on standard output: an object, or a list. A command
that continues, such as radio listen, prints one object per line. Keys are words with underscores;
keys that end with _s are seconds. An unknown value is null. Later versions may add keys. An error
is one object on standard error: error (what happened), where (a file, a port or a command, or
null) and hint (what to do, or null). The error of a wrong configuration also has mistakes, each
with line and what. Exit codes are the same as without --json.
"""


def pages(version: str) -> dict[str, str]:
    """Return the manual pages by file name."""
    return {"onceway.1": _commands(version), "gateway.toml.5": _configuration(version)}


def _commands(version: str) -> str:
    out = [
        _TITLE.format(title="ONCEWAY", section=1, version=version),
        ".SH NAME\nonceway \\- every reading of a sensor arrives exactly once\n",
        ".SH SYNOPSIS\n.B onceway\n.I COMMAND\n[\\fIOPTION\\fR]...\n",
        ".SH COMMANDS\n",
    ]
    for point in sorted(entry_points(group="onceway.commands")):
        if point.name in ("hil", "ingest"):
            continue  # not part of a gateway
        command = typer.main.get_command(point.load())
        out += [_command(words, item) for words, item in leaves(point.name, command)]
    out.append(".SH EXIT STATUS\n")
    out += [f".TP\n.B {code}\n{_plain(text)}" for code, text in MEANINGS.items()]
    out.append(f".SH JSON\n{_plain(_JSON)}")
    out.append(".SH ENVIRONMENT\n")
    out += [f".TP\n.B {name}\n{_plain(text)}" for name, text in _ENVIRONMENT]
    out.append(".SH FILES\n.TP\n/etc/onceway/gateway.toml\nSee\n.BR gateway.toml (5).\n")
    out.append(".SH SEE ALSO\n.BR gateway.toml (5),\n.BR systemctl (1),\n.BR journalctl (1)\n")
    return "".join(out)


def leaves(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    elif list(inner) == [words]:
        yield words, inner[words]
    else:
        for name, item in inner.items():
            yield from leaves(f"{words} {name}", item)


def _command(words: str, command: click.Command) -> str:
    about, _, example = (command.help or "").partition("Example: ")
    out = [f".SS onceway {words}\n", _plain(about)]
    for option in command.params:
        help_text = getattr(option, "help", None)
        if help_text and option.opts:
            out.append(f".TP\n.B {_escape(', '.join(option.opts))}\n{_plain(help_text)}")
    if example:
        out.append(f".PP\nExample:\n.B {_escape(' '.join(example.split()))}\n")
    return "".join(out)


def _configuration(version: str) -> str:
    out = [
        _TITLE.format(title="GATEWAY.TOML", section=5, version=version),
        ".SH NAME\ngateway.toml \\- configuration of the Onceway gateway and its uplink\n",
        ".SH DESCRIPTION\nTOML. Tables in [[ ]] may appear in the file any number of times.\n",
        ".B onceway gateway check-config\nchecks a change and lists its mistakes.\n",
    ]
    for entry in entries():
        out.append(f".SH {_escape(entry.header)}\n{_plain(entry.meaning)}")
        for key in entry.keys:
            default = "must be given" if key.needed else key.default or "no default"
            out.append(f".TP\n.B {_escape(key.name)}\n({_escape(default)}) {_plain(key.meaning)}")
    return "".join(out)


def _plain(text: str) -> str:
    return _escape(" ".join(text.split())) + "\n"


def _escape(text: str) -> str:
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))
