"""`onceway publish` in a shell."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.commands import exit_codes
from gateway.mqtt.packets import Connack
from gateway.mqtt.reason import ReasonCode as R
from onceway_publisher import Unreadable, cli
from tests.publisher.server import IGNORED, Server, server

ONCEWAY = Path(sys.executable).with_name("onceway")


async def published(
    own: Server, folder: Path, *words: str, given: str = ""
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(ONCEWAY, "publish", "--to", f"mqtt://127.0.0.1:{own.port}", "--device", "boiler"),
        *words,
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate(given.encode(errors="surrogateescape"))
    return process.returncode or 0, out.decode(), error.decode()


def values(own: Server) -> list[object]:
    records = [json.loads(one.payload)[0] for one in own.publishes]
    return [next(it[key] for key in ("v", "vb", "vs") if key in it) for it in records]


async def test_a_value_of_the_command_line(tmp_path: Path) -> None:
    async with server() as own:
        words = ("sensors/boiler/temp", "61.2", "--unit", "Cel")
        assert await published(own, tmp_path, *words) == (0, "", "")
        (record,) = json.loads(own.publishes[0].payload)
        assert (record["n"], record["u"], record["v"]) == ("temp", "Cel", 61.2)
        assert (tmp_path / "boiler.onceway").exists()


async def test_a_value_below_zero_is_no_option(tmp_path: Path) -> None:
    async with server() as own:
        assert await published(own, tmp_path, "t", "-5", "--unit", "Cel") == (0, "", "")
        assert values(own) == [-5]


async def test_each_line_of_standard_input_is_a_message(tmp_path: Path) -> None:
    given = "1\n2.5\n\n.5\ntrue\n1_0\nnan\nopen door\n-3e2\n  42\n\u0663"
    async with server() as own:
        assert await published(own, tmp_path, "t", given=given) == (0, "", "")
        assert values(own) == [1, 2.5, 0.5, True, "1_0", "nan", "open door", -300.0, 42, "\u0663"]
        assert len({*own.taken}) == 10


async def test_json_lines_in_and_out(tmp_path: Path) -> None:
    given = '{"topic": "a", "value": 1, "unit": "V", "time": 1700000000}\n{"value": "x"}\n7\n'
    async with server() as own:
        code, out, error = await published(own, tmp_path, "t", "--json", given=given)
        assert (code, error) == (0, "")
        assert [one.topic for one in own.publishes] == ["a", "t", "t"]
        assert values(own) == [1, "x", 7]
        assert [json.loads(line)["sequence"] for line in out.splitlines()] == [1, 2, 3]


async def test_unaccepted_message_waits_for_the_next_call(tmp_path: Path) -> None:
    async with server() as own:
        own.refuse = lambda packet: R.QUOTA_EXCEEDED
        code, _, error = await published(own, tmp_path, "t", "1", "--wait", "0.2")
        assert code == exit_codes.KEPT
        assert error.startswith("error: messages that wait in boiler.onceway: 1: ")
        own.refuse = lambda packet: R.SUCCESS
        assert await published(own, tmp_path, "t", "2") == (0, "", "")
        assert values(own)[-2:] == [1, 2]
        assert [sequence for _, sequence in own.taken] == [1, 2]


@pytest.mark.parametrize(
    ("words", "given", "code", "text"),
    [
        ((), "", exit_codes.USAGE, "name a topic"),
        (("a/#", "1"), "", exit_codes.USAGE, "not a topic of a message"),
        (("t", "--json"), "{", exit_codes.USAGE, "line 1 is not JSON"),
        (("--json",), '{"value": 1}', exit_codes.USAGE, "line 1 needs topic and value"),
        (("t", "--json"), '{"value": 1, "qos": 1}', exit_codes.USAGE, "line 1 needs"),
        (("t",), "1\n\udcff", exit_codes.USAGE, "line 2 is not UTF-8"),
        (("t", "--unti=Cel"), "", exit_codes.USAGE, "no such option: --unti=Cel"),
        (("t", "1", "--password-file", "none"), "", exit_codes.USAGE, "No such file"),
        (("t", "1", "--journal", "no/j"), "", exit_codes.FAILED, "Create the folder"),
    ],
)
async def test_wrong_arguments_are_reported(
    words: tuple[str, ...], given: str, code: int, text: str, tmp_path: Path
) -> None:
    async with server() as own:
        found = await published(own, tmp_path, *words, given=given)
        assert found[0] == code
        assert text in found[2]
        assert "Traceback" not in found[2]


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "9" * 5000, '{"value": 1, "qos": 1}', '{"unit": "V"}', "\udcff", '"']
)
def test_a_line_that_cannot_be_used_is_named(line: str) -> None:
    lines = cli._messages(["1\n", line], {"topic": "t"}, True)
    with pytest.raises(Unreadable, match="line 2 "):
        list(lines)


def test_a_number_of_any_length_is_a_number_or_no_finite_one() -> None:
    assert cli._typed("9" * 5000) == float("inf")
    assert cli._typed("-" + "9" * 300) == -int("9" * 300)


async def test_ctrl_c_ends_a_command_that_waits_for_input(tmp_path: Path) -> None:
    async with server() as own:
        process = await asyncio.create_subprocess_exec(
            *(ONCEWAY, "publish", "--to", f"mqtt://127.0.0.1:{own.port}", "--device", "boiler"),
            *("t", "--json"),
            cwd=tmp_path,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"1\n")
        assert await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGINT


async def test_no_line_is_read_when_standard_output_is_closed(tmp_path: Path) -> None:
    """First, standard output is a pipe without a reader, as after `| head -1`. Then, in a second
    run, standard input is closed from the start.
    """
    async with server() as own:

        async def run(closed: str, out: int) -> tuple[int | None, str]:
            to = f"mqtt://127.0.0.1:{own.port}"
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", f'seq 3 | "$0" publish "$@" {closed}', ONCEWAY),
                *("--to", to, "--device", "boiler", "t", "--json"),
                cwd=tmp_path,
                stdout=out,
                stderr=asyncio.subprocess.PIPE,
            )
            _, error = await process.communicate()
            return process.returncode, error.decode()

        reader, writer = os.pipe()
        os.close(reader)
        code, error = await run("", writer)
        os.close(writer)
        assert code == exit_codes.FAILED
        told = "standard output: Broken pipe. Lines after sequence 1 are not published"
        assert json.loads(error) == {"error": told}
        assert await run("<&-", asyncio.subprocess.DEVNULL) == (0, "")
        assert len(own.taken) == 1


async def test_an_ignored_identity_is_reported_and_nothing_is_sent(tmp_path: Path) -> None:
    async with server() as own:
        own.connack = Connack(False, properties=IGNORED)
        code, _, error = await published(own, tmp_path, "t", "1", "--json")
        assert code == exit_codes.FAILED
        assert 'identity = ["boiler"]' in json.loads(error)["error"]
        assert own.publishes == []
