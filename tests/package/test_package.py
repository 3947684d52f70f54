"""Parts of the Debian package. `make try-install` shows that the package can be installed, runs,
and can be removed.
"""

import os
import pwd
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".setup"))

from deb import UNITS  # noqa: E402
from lock import EXTRAS  # noqa: E402
from manual import pages  # noqa: E402
from sbom import Part, cyclonedx, licences, parts  # noqa: E402
from targets import TARGETS  # noqa: E402

LOCK = (ROOT / ".setup/gateway.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_holds_what_a_gateway_needs_in_the_versions_that_are_tested() -> None:
    locked = {_key(n): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)}
    constraints = (ROOT / ".setup/constraints.txt").read_text()
    tested = {_key(n): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE)}
    wanted = list(PROJECT["dependencies"])
    for extra in EXTRAS:
        wanted += PROJECT["optional-dependencies"][extra]
    assert {_key(re.split(r"[<>=]", line)[0]) for line in wanted} <= locked.keys()
    assert {name: tested.get(name) for name in locked} == locked


def test_each_part_has_a_hash_for_each_target() -> None:
    for entry in re.split(r"\n(?=\w)", LOCK.partition("\n\n")[2] or LOCK):
        if "==" not in entry:
            continue
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}", entry)
        # for all machines, one for each machine, or both kinds
        assert len(hashes) in (1, 2, len(TARGETS)), entry


def test_the_bill_of_materials_names_every_part_with_licence_and_hashes() -> None:
    part = Part("pyserial", "3.5", "BSD", ("ab" * 32,))
    document = cyclonedx([part], "0.1.0")
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    (component,) = document["components"]
    assert component["purl"] == "pkg:pypi/pyserial@3.5"
    assert component["licenses"] == [{"license": {"name": "BSD"}}]
    assert component["properties"][0]["value"] == "ab" * 32
    assert "pyserial 3.5: BSD\n" in licences([part])


def test_a_part_without_a_licence_is_not_shipped(tmp_path: Path) -> None:
    folder = tmp_path / "pyserial-3.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pyserial\nVersion: 3.5\n")
    with pytest.raises(ValueError, match="pyserial does not say its licence"):
        parts(tmp_path)


def test_the_manual_has_every_command_and_every_key() -> None:
    made = pages("0.1.0")
    for command in ("gateway run", "device add", "session show", "where", "user add"):
        assert f".SS onceway {command}\n" in made["onceway.1"]
    for key in ("bind", "client_ca", "max_bytes", "batch_age_s"):
        assert f".TP\n.B {key}\n" in made["gateway.toml.5"]
    assert "onceway hil" not in made["onceway.1"]


@pytest.mark.parametrize("script", sorted((ROOT / ".setup/debian").iterdir()), ids=lambda p: p.name)
def test_a_script_of_the_package_is_one_that_any_shell_reads(script: Path) -> None:
    subprocess.run(["dash", "-n", script], check=True)
    assert script.read_text().startswith("#!/bin/sh\n")


def test_services_of_the_package_are_those_of_the_units() -> None:
    units = {path.name for path in (ROOT / "systemd").glob("onceway-*.*")}
    running = {"onceway-gateway", "onceway-uplink"}
    backup = {"onceway-backup.service", "onceway-backup.timer"}
    assert units == {f"{name}.service" for name in running} | backup == set(UNITS)
    first, last = ((ROOT / ".setup/debian" / name).read_text() for name in ("postinst", "prerm"))
    assert all(name in first and name in last for name in running)
    assert "onceway-backup.timer" not in first, "it needs a passphrase first"
    assert "onceway-backup.timer" in last


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_upgrade_gives_the_uplink_what_is_its_own_and_follows_no_link(tmp_path: Path) -> None:
    data, landing, system = (tmp_path / name for name in ("data", "landing", "system"))
    for folder in (data, data / "batches", landing):
        folder.mkdir(parents=True)
    shared = [data / "gateway.db", data / "uplink.lock"]
    for file in (*shared, data / "uplink.key", data / "batches/1.parquet", system):
        file.touch(0o640)
    for link in (data / "batches/link", landing / "link", data / "gateway.db-link"):
        link.symlink_to(system)
    os.link(system, data / "other.lock")
    for path in (data / "uplink.key", *data.glob("batches/**"), data / "batches/link", landing):
        os.chown(path, pwd.getpwnam("games").pw_uid, -1, follow_symlinks=False)
    script = (ROOT / ".setup/debian/postinst").read_text()
    steps = script[script.index("find /var/lib") : script.index("if [ ! -e /etc")]
    steps = re.sub("-user onceway", "-user games", steps).replace("onceway-uplink", "mail")
    steps = steps.replace("/var/lib/onceway", str(data)).replace("/srv/onceway", str(landing))
    subprocess.run(["dash", "-e", "-c", steps], check=True)
    assert (system.owner(), system.stat().st_mode & 0o777) == ("root", 0o640)
    assert [file.stat().st_mode & 0o777 for file in shared] == [0o660, 0o660]
    given = [data / "uplink.key", data / "batches", landing]
    assert [path.owner() for path in given] == ["mail"] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_an_upgrade_follows_no_link_that_comes_while_it_works(swapped: str, tmp_path: Path) -> None:
    """Just before the upgrade changes a file, a program under the gateway's account replaces the
    file by a link.
    """
    data, landing, system = (tmp_path / name for name in ("data", "landing", "system"))
    for folder in (data / "batches/deep", landing, system):
        folder.mkdir(parents=True)
    games = pwd.getpwnam("games").pw_uid
    for file in (data / "gateway.db", data / "batches/deep/1.parquet", system / "1.parquet"):
        file.touch(0o640)
    for path in (data / "batches", data / "batches/deep", data / "batches/deep/1.parquet"):
        os.chown(path, games, -1)
    programs = tmp_path / "bin"
    programs.mkdir()
    swap = {
        "file": f"rm -f {data}/gateway.db; ln -s {system}/1.parquet {data}/gateway.db",
        "folder": f"mv {data}/batches/deep {data}/away; ln -s {system} {data}/batches/deep",
    }[swapped]
    for name in ("timeout", "chmod") if swapped == "file" else ("chown",):
        program = programs / name
        program.write_text(f'#!/bin/sh\n{swap} 2>/dev/null\nexec /usr/bin/{name} "$@"\n')
        program.chmod(0o755)
    script = (ROOT / ".setup/debian/postinst").read_text()
    steps = script[script.index("find /var/lib") : script.index("# A link may lead to a disk")]
    steps = steps.replace("-user onceway", "-user games").replace("onceway-uplink", "mail")
    steps = steps.replace("/var/lib/onceway", str(data)).replace("/srv/onceway", str(landing))
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    subprocess.run(["dash", "-e", "-c", steps], check=True, env=environment)
    file = system / "1.parquet"
    assert (system.owner(), file.owner(), file.stat().st_mode & 0o777) == ("root", "root", 0o640)
