"""The maintainer scripts of the Debian package, with every call of dpkg (Debian Policy 6.5 to 6.8)
in every order in which dpkg makes them. Services that ran before run again afterwards. Services
that a user has switched off stay off. `make try-install` shows the same with the real dpkg and
systemd.
"""

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.package.machine import BACKUP, GATEWAY, TIMER, UNITS, UPLINK, Call, Machine, State

NOW = Path(__file__).parents[2] / ".setup/debian"
OLD = Path(__file__).with_name("scripts_0.2.0")
"""The scripts of version 0.2.0, the first release for users."""
NEWER = "9.9.9+deb13"
VERSIONS = {NOW: "9.9.8+deb13", OLD: "0.2.0+deb13"}
FAILS = ("at once", "at the end")
STATES = {
    "running": State(),
    "stopped": State(active="inactive"),
    "disabled": State(enabled=False, active="inactive"),
    "disabled, but running": State(enabled=False),
    "masked": State(active="inactive", masked=True),
    "masked, but running": State(masked=True),
    "waiting for its next start": State(active="activating"),
}
IN_FAVOUR = "in-favour other 1.0"
REMOVING = f"{IN_FAVOUR} removing third 2.0"


def upgrade(old: Path, new: Path = NOW, to: str = NEWER) -> list[Call | str]:
    """Return the calls of an upgrade in which no script fails."""
    return [
        Call(old, "prerm", f"upgrade {to}"),
        Call(new, "preinst", f"upgrade {VERSIONS[old]} {to}"),
        "unpack",
        Call(old, "postrm", f"upgrade {to}"),
        Call(new, "postinst", f"configure {VERSIONS[old]}"),
    ]


def failing(what: str, old: Path, how: str) -> list[Call | str]:
    """Return the calls of an upgrade in which `what` fails. how: the script fails at once or at its
    end.
    """
    was = VERSIONS[old]
    prerm, preinst, _, postrm, postinst = upgrade(old)
    prerm_fails = Call(old, "prerm", f"upgrade {NEWER}", how)
    preinst_fails = Call(NOW, "preinst", f"upgrade {was} {NEWER}", how)
    postrm_fails = Call(old, "postrm", f"upgrade {NEWER}", how)
    second_prerm = Call(NOW, "prerm", f"failed-upgrade {was} {NEWER}")
    second_prerm_fails = Call(NOW, "prerm", f"failed-upgrade {was} {NEWER}", how)
    second_postrm = Call(NOW, "postrm", f"failed-upgrade {was} {NEWER}")
    second_postrm_fails = Call(NOW, "postrm", f"failed-upgrade {was} {NEWER}", how)
    new_gives_up = Call(NOW, "postrm", f"abort-upgrade {was} {NEWER}")
    old_goes_on = Call(old, "postinst", f"abort-upgrade {NEWER}")
    return {
        "old prerm": [prerm_fails, second_prerm, preinst, "unpack", postrm, postinst],
        "both prerm": [prerm_fails, second_prerm_fails, old_goes_on],
        "new preinst": [prerm, preinst_fails, new_gives_up, old_goes_on],
        "unpacking": [prerm, preinst, new_gives_up, old_goes_on],
        "old postrm": [prerm, preinst, "unpack", postrm_fails, second_postrm, postinst],
        "both postrm": [
            *(prerm, preinst, postrm_fails, second_postrm_fails),
            Call(old, "preinst", f"abort-upgrade {NEWER}"),
            *(new_gives_up, old_goes_on),
        ],
    }[what]


FAILING = ("old prerm", "both prerm", "new preinst", "unpacking", "old postrm", "both postrm")
NOTED_BY_NOBODY = ((OLD, "both prerm", "at the end"), (OLD, "new preinst", "at once"))
"""Failing upgrades from 0.2.0. The old scripts stop the services before a script of the new version
can note which of them ran.
"""
HERE = VERSIONS[NOW]
GIVEN_UP: dict[str, list[Call | str]] = {
    "a removal fails": [
        Call(NOW, "prerm", "remove", "at the end"),
        Call(NOW, "postinst", "abort-remove"),
    ],
    "a removal in favour of another package fails": [
        Call(NOW, "prerm", f"remove {IN_FAVOUR}"),
        Call(NOW, "postinst", f"abort-remove {IN_FAVOUR}"),
    ],
    "a deconfiguration fails": [
        Call(NOW, "prerm", f"deconfigure {IN_FAVOUR}", "at the end"),
        Call(NOW, "postinst", f"abort-deconfigure {IN_FAVOUR}"),
    ],
    "a deconfiguration is given up": [
        Call(NOW, "prerm", f"deconfigure {REMOVING}"),
        Call(NOW, "postinst", f"abort-deconfigure {REMOVING}"),
    ],
    "deconfigured and configured again": [
        Call(NOW, "prerm", f"deconfigure {REMOVING}"),
        Call(NOW, "postinst", f"configure {HERE}"),
    ],
    "a trigger": [Call(NOW, "postinst", "triggered /usr/lib/x")],
}
REMOVED: list[Call | str] = [
    Call(NOW, "prerm", "remove"),
    "remove",
    Call(NOW, "postrm", "remove"),
]
REMOVED_OLD: list[Call | str] = [
    Call(OLD, "prerm", "remove"),
    "remove",
    Call(OLD, "postrm", "remove"),
]
INSTALLED_AGAIN: list[Call | str] = [
    Call(NOW, "preinst", f"install {HERE} {HERE}"),
    "unpack",
    Call(NOW, "postinst", f"configure {HERE}"),
]
INSTALLED: list[Call | str] = [
    Call(NOW, "preinst", "install"),
    "unpack",
    Call(NOW, "postinst", "configure"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def after(before: State) -> State:
    """Return the state of a unit after an upgrade. It is as before, except that a masked unit does
    not run.
    """
    if before.masked:
        return State(before.enabled, "inactive", True)
    active = "inactive" if before.active == "inactive" else "active"
    return State(before.enabled, active)


def check(machine: Machine, before: dict[str, State]) -> None:
    found = {unit: machine.state(unit) for unit in before}
    # "activating" counts as started: the unit waits for its next start
    for state in found.values():
        assert state.active in ("active", "inactive", "activating")
    assert found == {
        unit: state if found[unit] == state else after(state) for unit, state in before.items()
    }


def put_all(machine: Machine, state: State) -> dict[str, State]:
    """Set the gateway and the uplink to a state, and the timer of backups to running. Return the
    state of each unit.
    """
    before = {GATEWAY: state, UPLINK: state, TIMER: State()}
    for unit, wanted in before.items():
        machine.put(unit, wanted)
    return before


both_versions = pytest.mark.parametrize("old", [NOW, OLD], ids=["this version", "0.2.0"])
each_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES)


@each_state
@both_versions
def test_an_upgrade_leaves_each_unit_as_it_was(machine: Machine, old: Path, state: State) -> None:
    before = put_all(machine, state)
    machine.dpkg(*upgrade(old))
    assert {unit: machine.state(unit) for unit in before} == {
        unit: after(was) for unit, was in before.items()
    }
    assert not (machine.root / "run/onceway-upgrade").exists()


@each_state
@pytest.mark.parametrize(
    ("old", "what", "how"),
    [
        pytest.param(old, what, how, id=f"{VERSIONS[old]}-{what}-{how}")
        for old, what, how in product((NOW, OLD), FAILING, FAILS)
        if (old, what, how) not in NOTED_BY_NOBODY
    ],
)
def test_an_upgrade_that_fails_leaves_each_unit_as_it_was(
    machine: Machine, old: Path, what: str, how: str, state: State
) -> None:
    before = put_all(machine, state)
    machine.dpkg(*failing(what, old, how))
    check(machine, before)
    assert not (machine.root / "run/onceway-upgrade").exists()


@each_state
@pytest.mark.parametrize("calls", GIVEN_UP.values(), ids=GIVEN_UP)
def test_aborted_installation_leaves_each_unit_as_it_was(
    machine: Machine, calls: list[Call | str], state: State
) -> None:
    before = put_all(machine, state)
    machine.dpkg(*calls)
    check(machine, before)


@each_state
def test_an_upgrade_and_the_way_back_and_an_upgrade_again(machine: Machine, state: State) -> None:
    before = put_all(machine, state)
    machine.dpkg(*upgrade(OLD))
    back = upgrade(NOW, OLD, VERSIONS[OLD])
    machine.dpkg(*back)
    # 0.2.0 starts all units that are enabled, and no others
    for unit in before:
        runs = "active" if before[unit].enabled and not before[unit].masked else "inactive"
        assert machine.state(unit) == State(before[unit].enabled, runs, before[unit].masked)
    for unit in (GATEWAY, UPLINK):
        (machine.root / "etc/systemd/system" / unit).unlink(missing_ok=True)
    machine.put(UPLINK, State(active="inactive"))  # like `systemctl stop` by a user
    machine.put(GATEWAY, State())
    machine.dpkg(*upgrade(OLD))
    assert (machine.state(GATEWAY), machine.state(UPLINK)) == (State(), State(active="inactive"))


@pytest.mark.parametrize(
    "step", ["systemd-sysusers", "systemd-tmpfiles", "find", "install", "python3", "onceway"]
)
@pytest.mark.parametrize("words", [f"configure {HERE}", f"abort-upgrade {NEWER}"])
def test_a_step_of_postinst_that_fails_keeps_no_service_from_running(
    machine: Machine, step: str, words: str
) -> None:
    before = put_all(machine, State()) | {UPLINK: State(active="inactive")}
    machine.put(UPLINK, before[UPLINK])
    machine.dpkg(Call(NOW, "prerm", f"upgrade {NEWER}"))
    assert machine.state(GATEWAY).active == "inactive"
    machine.fail(step)
    optional = step in ("python3", "onceway") or words.startswith("abort")
    machine.dpkg(Call(NOW, "postinst", words, "" if optional else "at the end"))
    check(machine, before)
    (machine.root / "fails" / step).unlink()
    machine.dpkg(Call(NOW, "postinst", f"configure {HERE}"))
    if not optional:  # otherwise this is another configuration after a successful one
        check(machine, before)


@pytest.mark.parametrize("stopped", [GATEWAY, UPLINK])
def test_unit_stopped_by_a_user_stays_stopped(machine: Machine, stopped: str) -> None:
    before = put_all(machine, State())
    machine.fail("systemd-sysusers")
    machine.dpkg(*upgrade(NOW)[:-1], Call(NOW, "postinst", f"configure {HERE}", "at the end"))
    check(machine, before)
    machine.put(stopped, State(active="inactive"))
    (machine.root / "fails/systemd-sysusers").unlink()
    machine.dpkg(Call(NOW, "postinst", f"configure {HERE}"))
    check(machine, before | {stopped: State(active="inactive")})


def test_removal_of_0_2_0_reports_disabled_backups(machine: Machine) -> None:
    put_all(machine, State())
    machine.dpkg(*REMOVED_OLD)
    stamp = machine.root / "var/lib/systemd/timers/stamp-onceway-backup.timer"
    install = Call(NOW, "preinst", f"install {VERSIONS[OLD]} {HERE}")
    assert "onceway-backup.timer" not in machine.dpkg(install)
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    assert "systemctl enable --now onceway-backup.timer" in machine.dpkg(install)


@pytest.mark.parametrize("right", [True, False])
@both_versions
def test_an_update_says_what_is_wrong_with_the_configuration(
    machine: Machine, old: Path, right: bool
) -> None:
    """A new version may refuse the configuration of an older version, for example a gateway called
    _lab.
    """
    words = "gateway.toml: ok" if right else "gateway.toml: gateway.name: '_lab' begins with _"
    program = machine.root / "bin/onceway"
    program.write_text(
        f'#!/bin/sh\necho "onceway $*" >>"$ROOT/log"\n[ "$2" != check-config ] && exit\n'
        f'echo "{words}" >&2\nexit {0 if right else 1}\n'
    )
    before = put_all(machine, State())
    assert words in machine.dpkg(*upgrade(old))
    check(machine, before)
    fresh = machine.dpkg(Call(NOW, "postinst", "configure"))
    assert words not in fresh, "an installation has a configuration of ours"


@pytest.mark.parametrize("step", ["systemd-sysusers", "systemd-tmpfiles", "install"])
def test_dpkg_hears_of_a_step_of_postinst_that_fails(machine: Machine, step: str) -> None:
    machine.fail(step)
    with pytest.raises(AssertionError):
        machine.dpkg(Call(NOW, "postinst", f"configure {HERE}"))


@pytest.mark.parametrize("there", ["nothing", "a file", "a link to nowhere"])
def test_only_a_configuration_that_is_missing_is_made(machine: Machine, there: str) -> None:
    """A link to nowhere stays, because its target may be on a disk that is not mounted."""
    file = machine.root / "etc/onceway/gateway.toml"
    file.parent.mkdir()
    if there == "a file":
        file.write_text("[gateway]")
    elif there == "a link to nowhere":
        file.symlink_to(machine.root / "nowhere")
    machine.dpkg(*upgrade(NOW))
    assert ("install -m 640" in machine.log) == (there == "nothing")


def test_a_prerm_that_ran_before_the_machine_was_interrupted_is_not_forgotten(
    machine: Machine,
) -> None:
    before = put_all(machine, State())
    machine.dpkg(Call(NOW, "prerm", f"upgrade {NEWER}"))  # then dpkg is killed
    machine.dpkg(*upgrade(NOW))
    check(machine, before)


def test_unpacked_and_configured_after_a_boot(machine: Machine) -> None:
    put_all(machine, State())
    machine.dpkg(*upgrade(NOW)[:-1])
    assert machine.state(GATEWAY).active == "inactive", "unpacked: not yet configured"
    subprocess.run(["rm", "-r", machine.root / "run/onceway-upgrade"], check=True)
    machine.dpkg(upgrade(NOW)[-1])
    assert machine.state(GATEWAY).active == machine.state(TIMER).active == "active"


@each_state
def test_removed_nothing_runs_and_what_a_user_chose_stays(machine: Machine, state: State) -> None:
    put_all(machine, state)
    machine.dpkg(*REMOVED)
    for unit in UNITS:
        assert machine.state(unit).active == "inactive"
    machine.dpkg(*INSTALLED_AGAIN)
    runs = "active" if state.enabled and not state.masked else "inactive"
    for unit in (GATEWAY, UPLINK):
        assert machine.state(unit) == State(state.enabled, runs, state.masked)
    assert machine.state(TIMER) == State()
    assert machine.state(BACKUP).active == "inactive"


def test_0_2_0_that_was_removed_and_this_version_installed(machine: Machine) -> None:
    put_all(machine, State())
    machine.dpkg(*REMOVED_OLD)
    assert machine.state(GATEWAY) == State(enabled=False, active="inactive")
    was = VERSIONS[OLD]
    machine.dpkg(
        Call(NOW, "preinst", f"install {was} {HERE}"),
        "unpack",
        Call(NOW, "postinst", f"configure {was}"),
    )
    assert machine.state(GATEWAY) == machine.state(UPLINK) == State()


@each_state
def test_purged_and_installed_it_runs_as_for_the_first_time(machine: Machine, state: State) -> None:
    put_all(machine, state)
    machine.dpkg(*REMOVED, Call(NOW, "postrm", "purge"))
    wants = (machine.root / "etc/systemd/system").glob("*.wants/*")
    assert [path.name for path in wants] == []
    machine.dpkg(*INSTALLED)
    runs = "inactive" if state.masked else "active"
    for unit in (GATEWAY, UPLINK):
        assert machine.state(unit) == State(not state.masked, runs, state.masked)
    assert machine.state(TIMER).enabled is False, "it needs a passphrase first"


@pytest.mark.parametrize("versions", ["", f" {HERE} {NEWER}"], ids=["new", "removed before"])
def test_an_installation_that_fails_leaves_nothing(machine: Machine, versions: str) -> None:
    machine.remove()
    machine.dpkg(
        Call(NOW, "preinst", f"install{versions}"),
        Call(NOW, "postrm", f"abort-install{versions}"),
    )
    assert "start" not in re.findall(r"systemctl (\S+)", machine.log)
    assert not (machine.root / "run/onceway-upgrade").exists()


def test_a_package_that_disappears_stops(machine: Machine) -> None:
    put_all(machine, State())
    machine.dpkg(Call(NOW, "postrm", "disappear other 1.0"))
    assert {machine.state(unit).active for unit in UNITS} == {"inactive"}


def test_a_backup_that_a_removal_interrupts_begins_again_when_it_is_given_up(
    machine: Machine,
) -> None:
    put_all(machine, State())
    machine.put(BACKUP, State(enabled=False, active="activating"))
    machine.dpkg(*GIVEN_UP["a removal fails"])
    assert "systemctl start --no-block onceway-backup.service" in machine.log
    machine.put(BACKUP, State(enabled=False, active="inactive"))
    machine.dpkg(*GIVEN_UP["a removal fails"])
    assert machine.state(BACKUP).active == "inactive"


@pytest.mark.parametrize("calls", [upgrade(NOW), upgrade(OLD), INSTALLED, REMOVED])
def test_without_a_running_systemd_nothing_is_started_or_stopped(
    tmp_path: Path, calls: list[Call | str]
) -> None:
    machine = Machine(tmp_path, booted=False)
    machine.dpkg(*calls)
    said = re.findall(r"systemctl (\S+)", machine.log)
    assert set(said) <= {"is-enabled", "enable"}
    if calls is INSTALLED:
        assert machine.state(GATEWAY).enabled


def test_functions_of_the_same_name_are_the_same() -> None:
    """The maintainer scripts cannot share a file, so functions that they share are copied. The
    copies must be equal.
    """
    found: dict[str, set[str]] = {}
    for script in NOW.iterdir():
        for name, body in re.findall(r"(?ms)^(\w+)\(\) \{\n(.*?)^\}", script.read_text()):
            found.setdefault(name, set()).add(body)
    assert {name for name, bodies in found.items() if len(bodies) > 1} == set()
    assert "stop" in found


def test_each_call_of_dpkg_is_tried_here() -> None:
    """All calls of the table in Debian Policy 6.5 occur in the tests of this file."""
    calls = [
        *(call for what in FAILING for how in FAILS for call in failing(what, NOW, how)),
        *(call for given_up in GIVEN_UP.values() for call in given_up),
        *(*upgrade(NOW), *REMOVED, *INSTALLED, *INSTALLED_AGAIN),
    ]
    made = {(call.name, call.words.split()[0]) for call in calls if isinstance(call, Call)}
    made |= {("postrm", "purge"), ("postrm", "abort-install"), ("postrm", "disappear")}
    policy = {
        "preinst": ("install", "upgrade", "abort-upgrade"),
        "postinst": (
            *("configure", "triggered"),
            *("abort-upgrade", "abort-remove", "abort-deconfigure"),
        ),
        "prerm": ("remove", "upgrade", "failed-upgrade", "deconfigure"),
        "postrm": (
            *("remove", "purge", "upgrade", "failed-upgrade", "disappear"),
            *("abort-install", "abort-upgrade"),
        ),
    }
    assert made == {(name, words) for name, all_words in policy.items() for words in all_words}
