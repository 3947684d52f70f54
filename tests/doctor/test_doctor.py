"""`onceway doctor` finds faults of a gateway and names their remedies. In place of hardware, the
tests use a folder with files as the kernel has them in /sys and /proc.
"""

import asyncio
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.commands import control_client
from gateway.config import Config, parse
from gateway.doctor import bridges, disk, machine, ports, services, settings
from gateway.doctor.finding import Finding, State
from gateway.store.schema import FILE, open_store
from gateway.system import accounts
from gateway.uplink.cutter import DAMAGED
from gateway.uplink.damaged_rows import HELD
from gateway.uplink.spool import OUTAGE, Spool
from tests.service.process import start

ONCEWAY = Path(sys.executable).with_name("onceway")


def states(found: Iterator[Finding]) -> list[tuple[State, str]]:
    return [(item.state, item.what) for item in found]


def doctor(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ONCEWAY, "doctor", "--config", config, *options],
        capture_output=True,
        text=True,
        check=False,
    )


def sensor(root: Path, name: str, alarm: str | None) -> None:
    folder = root / "sys/class/hwmon/hwmon1"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    if alarm is not None:
        (folder / "in0_lcrit_alarm").write_text(f"{alarm}\n")


@pytest.mark.parametrize(
    ("alarm", "state"), [("0", State.OK), ("1", State.WRONG), (None, State.UNSEEN)]
)
def test_a_pi_whose_voltage_is_too_low(tmp_path: Path, alarm: str | None, state: State) -> None:
    sensor(tmp_path, "rpi_volt", alarm)
    assert [item.state for item in machine.power(tmp_path)] == [state]


def test_other_machines_have_no_such_sensor(tmp_path: Path) -> None:
    sensor(tmp_path, "coretemp", "1")
    assert list(machine.power(tmp_path)) == []


def test_a_clock_that_is_not_synchronised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "synchronised", lambda: False)
    assert [item.state for item in machine.clock(trusted=False)] == [State.WRONG]
    assert [item.state for item in machine.clock(trusted=True)] == [State.OK]


def card(root: Path, data: Path, errors: int, life: str) -> None:
    """Write files as in /sys for an eMMC card with one partition, which has the data directory."""
    number = os.stat(data).st_dev
    block = root / "sys/devices/mmc0/block/mmcblk0"
    (block / "queue").mkdir(parents=True)
    (block / "device").mkdir()
    (block / "device/life_time").write_text(life)
    (block / "mmcblk0p2").mkdir()
    link = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(block / "mmcblk0p2")
    (root / "sys/fs/ext4/mmcblk0p2").mkdir(parents=True)
    (root / "sys/fs/ext4/mmcblk0p2/errors_count").write_text(f"{errors}\n")


def test_a_card_with_errors_that_is_worn(tmp_path: Path) -> None:
    card(tmp_path, tmp_path, errors=3, life="0x01 0x0a\n")
    assert states(disk.health(tmp_path, tmp_path)) == [
        (State.WRONG, "the file system of mmcblk0p2 has counted 3 errors"),
        (State.WARNING, "mmcblk0 has used 100 % of its life"),
    ]


def test_a_card_that_is_well(tmp_path: Path) -> None:
    card(tmp_path, tmp_path, errors=0, life="0x01 0x02\n")
    assert {item.state for item in disk.health(tmp_path, tmp_path)} == {State.OK}


def test_a_disk_that_is_full_before_the_spool_is(tmp_path: Path) -> None:
    assert [item.state for item in disk.room(tmp_path, 1 << 60)] == [State.WARNING]
    assert [item.state for item in disk.room(tmp_path, 1)] == [State.OK]


def test_a_port_that_is_missing_held_or_no_port(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    near, far = pty.openpty()
    name = os.ttyname(far)
    holder = subprocess.Popen(["sleep", "60"], stdin=far)
    try:
        found = list(ports.ports(["/dev/ttyNone7", "/dev/ttyNone*", name, "/etc/hosts"], tmp_path))
        assert [(item.part, item.state) for item in found] == [
            ("port /dev/ttyNone7", State.WRONG),
            ("port /dev/ttyNone*", State.WARNING),
            (f"port {name}", State.WRONG),
            ("port /etc/hosts", State.WRONG),
        ]
        assert f"in use by sleep (pid {holder.pid})" in found[2].what
    finally:
        holder.kill()
        holder.wait()
        os.close(near)
        os.close(far)


def test_programs_and_a_console_that_meddle_with_ports(tmp_path: Path) -> None:
    (tmp_path / "proc/12").mkdir(parents=True)
    (tmp_path / "proc/12/comm").write_text("ModemManager\n")
    (tmp_path / "proc/cmdline").write_text("root=/dev/mmcblk0p2 console=ttyS7,115200 quiet\n")
    (tmp_path / "ttyS7").touch()
    port = tmp_path / "serial0"
    port.symlink_to(tmp_path / "ttyS7")
    said = " ".join(item.what for item in ports.ports([str(port)], tmp_path))
    assert "ModemManager runs" in said
    assert "the kernel's console writes to it" in said


def certificate(folder: Path, days: int) -> Config:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days, hours=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (folder / "key.pem").chmod(0o600)
    files = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    return parse({"listener": [{"bind": "127.0.0.1:8883", "tls": files}]}, "test")


@pytest.mark.parametrize(
    ("days", "state"), [(200, State.OK), (12, State.WARNING), (-3, State.WRONG)]
)
def test_a_certificate_that_ends(tmp_path: Path, days: int, state: State) -> None:
    assert [item.state for item in settings.tls(certificate(tmp_path, days))] == [state]


def test_the_page_has_a_certificate_too(tmp_path: Path) -> None:
    tls = certificate(tmp_path, 5).listener[0].tls
    assert tls is not None
    page = {"certificate": str(tls.certificate), "key": str(tls.key)}
    config = parse({"page": page}, "a file")
    assert [item.state for item in settings.tls(config)] == [State.WARNING]


def test_password_of_a_bridge_is_missing_or_readable_by_all(tmp_path: Path) -> None:
    password = tmp_path / "password"
    bridge = {"name": "cloud", "server": "mqtt://127.0.0.1", "up": ["#"], "user": "site-1"}
    config = parse(
        {
            "gateway": {"data": str(tmp_path)},
            "bridge": [bridge | {"password_file": str(password)}],
        },
        "a file",
    )
    (missing,) = bridges.bridges(config)
    assert missing.state == State.WRONG
    assert "the password cannot be read" in missing.what
    password.write_text("secret")
    password.chmod(0o644)
    everybody, untold = bridges.bridges(config)
    assert (everybody.state, untold.state) == (State.WRONG, State.UNSEEN)
    assert "secret" not in everybody.what


def test_set_aside_messages_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = {"name": "cloud", "server": "mqtt://127.0.0.1", "up": ["#"]}
    config = parse({"gateway": {"data": str(tmp_path)}, "bridge": [bridge]}, "a file")
    state = {"name": "cloud", "error": None, "waiting": 0, "dropped": 0, "sent": 1}
    state |= {"aside": 3, "aside_lost": 1, "lacking": ["commands/#"]}
    state |= {"unconfirmed": 4, "not_taken": 5, "looped": 6}
    monkeypatch.setattr(bridges, "ask", lambda *_, **__: [{"bridges": [state]}])
    connected, aside, unconfirmed, not_taken, looped, lacking = bridges.bridges(config)
    assert (unconfirmed.state, not_taken.state) == (State.WARNING, State.WARNING)
    assert "4 messages were given up" in unconfirmed.what
    assert "5 messages from the other broker" in not_taken.what
    assert (looped.state, looped.what.startswith("6 messages came back")) == (State.WARNING, True)
    assert connected.state == State.OK
    assert (aside.state, lacking.state) == (State.WARNING, State.WARNING)
    assert "3 messages are set aside, 1 more were lost" in aside.what
    assert "commands/#" in lacking.what


def test_key_file_readable_by_all_users(tmp_path: Path) -> None:
    config = certificate(tmp_path, 200)
    (tmp_path / "key.pem").chmod(0o644)
    assert [item.state for item in settings.tls(config)] == [State.OK, State.WRONG]


def test_credentials_that_the_gateway_may_read(tmp_path: Path) -> None:
    assert list(settings.credentials(tmp_path)) == []
    file = tmp_path / "uplink.env"
    file.write_text("AWS_SECRET_ACCESS_KEY=secret\n")
    file.chmod(0o640)
    (found,) = settings.credentials(tmp_path)
    assert (found.state, "chmod 600" in (found.todo or "")) == (State.WRONG, True)
    file.chmod(0o600)
    assert list(settings.credentials(tmp_path)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_credentials_that_belong_to_the_gateway(tmp_path: Path) -> None:
    (tmp_path / "uplink.env").touch(0o600)
    shutil.chown(tmp_path / "uplink.env", "games")
    (found,) = settings.credentials(tmp_path)
    assert (found.state, "chown root:" in (found.todo or "")) == (State.WRONG, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_the_uplink_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    tmp_path.chmod(0o2750)
    (tmp_path / "uplink.key").touch()
    os.chown(tmp_path / "uplink.key", *accounts.uplink_owner(tmp_path))
    assert [item.state for item in settings.files(tmp_path)] == [State.OK]
    tmp_path.chmod(0o750)  # without the setgid bit, gateway and uplink share one account
    assert [item.state for item in settings.files(tmp_path)] == [State.WRONG]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_uplinks_own_files_are_given_back_to_the_uplink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    tmp_path.chmod(0o2750)
    (tmp_path / "uplink.key").touch()
    (tmp_path / "batches").mkdir()
    (tmp_path / "gateway.db").touch()
    for name in ("batches", "gateway.db"):
        shutil.chown(tmp_path / name, "mail")
    found = {item.what.rpartition(": ")[2]: item.todo or "" for item in settings.files(tmp_path)}
    assert "chown -R games:" in found["batches, uplink.key"]
    assert "chown -R root:" in found["gateway.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_uplink_has_nothing_in_the_place_of_the_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "UPLINK", "games")
    tmp_path.chmod(0o2750)
    for name in ("registry.db", "gateway.db-wal", "uplink.lock"):
        (tmp_path / name).touch()
        shutil.chown(tmp_path / name, "games")
    (found,) = settings.files(tmp_path)
    assert found.what.endswith("do not belong to root: registry.db")
    shutil.chown(tmp_path / "registry.db", "root")
    tmp_path.chmod(0o2770)
    (found,) = settings.files(tmp_path)
    assert (found.state, "chmod 2750" in (found.todo or "")) == (State.WRONG, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    (tmp_path / "gateway.db").touch()
    assert [item.state for item in settings.files(tmp_path)] == [State.OK]
    os.chown(tmp_path / "gateway.db", 12345, 12345)
    (found,) = settings.files(tmp_path)
    assert found.state == State.WRONG
    assert "gateway.db" in found.what
    assert "chown -R root:" in (found.todo or "")


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """Return the data of a gateway that has run before and is stopped now."""
    data, landing = tmp_path / "data", tmp_path / "landing"
    data.mkdir(mode=0o750)
    landing.mkdir()
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'gateway.data = "{data}"\ngateway.trust_clock = true\n'
        f'uplink.landing = "file://{landing}"\n'
        '[[listener]]\nbind = "127.0.0.1:0"\n'
    )
    open_store(data, "gateway").close()
    return file


def test_stopped_gateway_is_reported_with_the_command_to_type(configured: Path) -> None:
    done = doctor(configured)
    assert done.returncode == 1
    assert "✗ gateway: it does not run\n    `sudo systemctl start onceway-gateway`" in done.stdout
    assert "✗ uplink: it does not run; 0 messages wait" in done.stdout
    assert "no serial port and no radio is served" in done.stdout
    assert "landing place file://" in done.stdout


def test_a_gateway_of_boards_by_radio_needs_its_modem_and_no_serial_port(configured: Path) -> None:
    text = '[[lora]]\nport = "/dev/ttyNone7"\nnetwork = 7\n'
    configured.write_text(configured.read_text() + text)
    done = doctor(configured)
    assert "boards cannot connect" not in done.stdout
    assert "✗ port /dev/ttyNone7: there is no such port\n    Plug it in" in done.stdout


def test_programs_read_it_as_json(configured: Path) -> None:
    done = doctor(configured, "--json", "--quiet")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert {item["state"] for item in found} <= {"wrong", "warning", "unseen"}
    assert all(item["todo"] for item in found if item["state"] in ("wrong", "warning"))


def test_a_gateway_that_never_started(configured: Path) -> None:
    configured.write_text(configured.read_text().replace("/data", "/nothing"))
    done = doctor(configured)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "does not exist" in done.stdout


async def test_a_gateway_that_runs_and_lands_is_well(configured: Path) -> None:
    running = await start("--config", str(configured))
    lander = await asyncio.create_subprocess_exec(
        *(ONCEWAY, "uplink", "run", "--config", configured), stderr=subprocess.PIPE
    )
    try:
        await running.ready()
        assert lander.stderr is not None
        async with asyncio.timeout(30):
            while b"next batch: 1" not in await lander.stderr.readline():
                assert lander.returncode is None
        found = {
            item["part"]: item["state"] for item in json.loads(doctor(configured, "--json").stdout)
        }
        assert (found["gateway"], found["uplink"]) == ("ok", "ok")
        assert [state for part, state in found.items() if part.startswith("landing")] == ["ok"]
    finally:
        lander.terminate()
        await lander.communicate()
        await running.end()


@pytest.mark.parametrize("reachable", [True, False])
def test_the_landing_place_is_tried_while_an_outage_is_noted(
    configured: Path, reachable: bool
) -> None:
    with Spool(configured.parent / "data") as spool:
        spool.put({OUTAGE: json.dumps({"since": 1, "error": "no route to host"})})
    place = configured.parent / "landing"
    if not reachable:
        place.rmdir()
        place.write_text("a file in the place of the folder")
    found = json.loads(doctor(configured, "--json").stdout)
    (said,) = (item for item in found if item["part"].startswith("landing place"))
    assert said["state"] == "wrong"
    before, outage, _ = said["what"].partition("the uplink cannot land a batch: no route to host")
    assert outage
    tried = "it answers now, and a hard link to an existing name is refused"
    assert (tried in before) is reachable
    assert ("cannot " in before) is not reachable


def test_damaged_rows_are_a_warning_until_their_file_is_moved_away(configured: Path) -> None:
    data = configured.parent / "data"
    with Spool(data) as spool:
        spool.put({HELD: "3"})
    (data / "batches").mkdir(exist_ok=True)
    file = data / "batches" / DAMAGED
    file.write_text("{}\n")
    said = f"damaged rows were set aside, and do not land: 3, in {file}"
    for there in (True, False):
        found = json.loads(doctor(configured, "--json").stdout)
        assert ((said, "warning") in [(it["what"], it["state"]) for it in found]) is there
        file.unlink(missing_ok=True)


def test_without_a_configuration_it_says_which_is_missing(tmp_path: Path) -> None:
    done = doctor(tmp_path / "none.toml")
    assert done.returncode == 2
    assert "none.toml" in done.stderr


def test_a_gateway_that_hangs_is_wrong_and_not_merely_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "TIMEOUT_S", 0.1)
    config = parse({"gateway": {"data": str(tmp_path)}}, "here")
    with socket.socket(socket.AF_UNIX) as listening, control_client.short(tmp_path) as path:
        listening.bind(path)
        listening.listen()  # the gateway never accepts
        (found,) = services.gateway(config)
    assert (found.state, "does not answer" in found.what) == (State.WRONG, True)
    assert "journalctl" in f"{found.what} {found.todo}"


def test_file_that_is_not_a_database_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    config = parse({"gateway": {"data": str(tmp_path)}, "uplink": {"landing": "file:///x"}}, "here")
    (found,) = services.uplink(config)
    assert (found.state, "onceway store check" in (found.todo or "")) == (State.WRONG, True)
    assert "sudo" not in (found.todo or ""), "a right is not what it lacks"
