"""Each logger call that a stranger can reach is behind a throttle, or is listed here with the
reason why a stranger cannot repeat it.

In the running gateway, `LogFlood` also limits each call to hundreds of lines (`test_log_flood.py`).
This test finds a new call that logs a line for each event.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parent
ELSEWHERE = {
    "backup": "a command",
    "commands": "commands",
    "doctor": "a command",
    "ingest": "the centre: it reads files of known gateways",
    "notify": "another process, with no listener",
    "payload": "pure functions",
    "publisher": "a library for clients",
    "uplink": "another process, with no listener",
}
"""Packages whose code clients cannot reach, and why."""
LEVELS = {"info", "warning", "error", "exception", "critical", "log"}
THROTTLES = {"allows", "has_room", "_may_log"}
NOT_REPEATED = {
    "once per start or reload, or for a person's request": """
        boards/commands.py:command boards/expected.py:_read boards/history.py:_read
        access/trusted.py:_recall bridge/bridges.py:_forget_aside links/lora/ledger_file.py:_restore
        links/lora/port.py:_read links/lora/port.py:_read_count links/serial_port.py:lend
        links/serial_port.py:_tell_restarts links/endpoint.py:listen links/endpoint.py:_try_again
        runtime/use_of_spool.py:tell_use_of_spool*3 service/cli.py:run
        service/cli.py:_raise_file_limit service/gateway.py:reload*3 service/gateway.py:_serve*2
        service/gateway.py:_open_broker service/listeners.py:change service/listeners.py:_replace
        service/listeners.py:_change_serial service/management.py:start
        service/management.py:_start_page service/management.py:_start_web site/links/net.py:start*2
        site/wiring/replicas.py:_read_shelf*2 site/wiring/sessions.py:_compare_members*2
        store/doubts.py:read*2 store/recovery.py:_leave_out*2 store/uptime.py:axis
        store/uptime.py:_tell_away store/copies.py:put_aside store/copies.py:_readable
        system/notify.py:notify web/page_logins.py:_recall service/control.py:_end
        service/control.py:_device service/control.py:_command service/control.py:_look
        service/control.py:_serve
    """,
    "by users with a role on the page": """
        web/page.py:_end web/page.py:_publish web/page_flash.py:choices web/page_flash.py:start
        web/page_flash.py:_work*2 web/page_logins.py:_let_in web/page_registry.py:change
        web/page_registry.py:_run
    """,
    "the begin and the end of a state, at the pace of this machine, its files and its timers": """
        boards/admission.py:_reread boards/expected.py:_log*2 boards/history.py:write
        runtime/clock.py:_tell*2 runtime/watchdog.py:_look runtime/engine.py:fail
        runtime/administration.py:_dismiss store/copies.py:_set_aside links/serial_port.py:open
        links/serial_port.py:_on_port_lost links/lora/port.py:_say store/checkpoint.py:_report*2
        store/move_out.py:give store/move_out.py:__getitem__ store/space.py:_judge*2
        store/writer.py:read store/writer.py:_write store/writer.py:_say*3 system/jobs.py:succeed
        system/jobs.py:fail system/dial.py:_tell system/log_throttle.py:has_room*2
        mirror/home_assistant.py:_repeat links/lora/port.py:_handle
        site/links/certificate.py:look
    """,
    "an internal error": """
        access/logins.py:_failed boards/nowhere.py:_ask boards/payload_conflicts.py:_conflict
        bridge/bridge.py:_blame bridge/converge.py:_run bridge/gate.py:_wait store/writer.py:_read
        links/lora/transports.py:write
    """,
    "a damaged store; the session ends": """
        broker/queue_pages.py:_tell broker/queue_pages.py:unreadable
        broker/queue_pages.py:_collected
    """,
    "the broker at the other end of a bridge, once per connection or per filter": """
        bridge/agreed.py:_give_up bridge/bridge.py:_succeed bridge/bridge.py:_hello
        bridge/converge.py:_fail bridge/converge.py:_first_mark bridge/counts.py:came_back
        bridge/far_filters.py:_lack bridge/far_filters.py:subscribed
    """,
    "members of a site, which have proved a certificate": """
        site/links/net.py:joined site/links/certificate.py:_renew site/links/net.py:over
        site/links/net.py:_spread site/links/net.py:_refused site/wiring/registry.py:_tell
        site/wiring/registry.py:_exchange site/wiring/replicas.py:_land
        site/wiring/replicas.py:_adopted site/wiring/replicas.py:refuse*2
        site/wiring/replicas.py:begin_line site/wiring/sessions.py:_gave
        site/wiring/sessions.py:_arrived*2 site/wiring/sessions.py:mark_all_suspect
        site/wiring/membership.py:_change site/wiring/membership.py:_tell_unlike
    """,
    "boards of the registry, or a bounded number of names": """
        boards/admission.py:is_revoked boards/admission.py:_strangers
        links/lora/transports.py:_check_name boards/payload_conflicts.py:_count_conflict
    """,
    "information about one session each, which `LogFlood` alone limits": """
        boards/reports.py:_hear_log links/lora/transports.py:handle links/lora/transports.py:_end
        runtime/engine.py:_write_to
    """,
}


def unthrottled(path: Path) -> Iterator[str]:
    """For each call of a logger that is not guarded by a throttle, yield the name of the function
    that contains it.
    """

    def walk(node: ast.AST, function: str, guarded: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner, is_guarded = function, guarded
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner, is_guarded = child.name, False
            elif isinstance(node, ast.If) and child in node.body:
                is_guarded = guarded or _asks_a_throttle(node.test)
            if not guarded and _is_logging(child):
                yield function
            yield from walk(child, inner, is_guarded)

    return walk(ast.parse(path.read_text()), "", False)


def _asks_a_throttle(test: ast.expr) -> bool:
    names = (getattr(part, "attr", getattr(part, "id", None)) for part in ast.walk(test))
    return not THROTTLES.isdisjoint(names)


def _is_logging(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and ast.unparse(node.func.value).strip("_") in ("log", "logger", "logging")
    )


def test_each_logger_call_is_throttled_or_cannot_be_repeated_by_a_stranger() -> None:
    found: Counter[str] = Counter()
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT)
        if place.parts[0] not in ELSEWHERE:
            found.update(f"{place}:{function}" for function in unthrottled(path))
    allowed: Counter[str] = Counter()
    for item in " ".join(NOT_REPEATED.values()).split():
        name, _, count = item.partition("*")
        allowed[name] += int(count or 1)
    assert found - allowed == Counter(), "put it behind a LogThrottle, or say why not"
    assert allowed - found == Counter(), "no longer there"


def test_all_output_of_the_process_goes_through_the_loggers() -> None:
    """A throttle limits the loggers, but not direct output. So only `logs.py` and commands print to
    standard error directly.
    """
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] in ELSEWHERE or path.name.endswith("cli.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in (
                    "print",
                    "sys.stderr.write",
                    "sys.stdout.write",
                    "traceback.print_exc",
                    "traceback.print_exception",
                    "warnings.warn",
                ), f"{path}:{node.lineno}"
