"""The Debian package of a gateway: `build/onceway_VERSION+deb12_amd64.deb`.

In: `build/wheel/onceway-*.whl` (`make wheel`), `gateway.txt`, `debian/`, `systemd/`. Out: the
package, with its Python packages under /usr/lib/onceway as a virtual environment of the release's
own Python; no compiler, no Java. Packages for other releases and machines are built from wheels
alone, so `deb.py --all` can make every package on any machine.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import sbom
from manual import pages
from targets import TARGETS, Target, this_machine

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
HOME = Path("usr/lib/onceway")
_SERVICES = ("s3", "sso", "sso-oidc", "sts")
"""Amazon services whose data files of botocore stay in the package: for the landing place, and for
the login to it.
"""
_KEPT = ("__init__.py", "_mapping.py", "cli.py")
_SOURCES = ("*.c", "*.h", "*.pxd", "*.pxi", "*.pyi", "*.pyx")
"""Source files of compiled modules, which are left out."""
UNITS = (
    "onceway-gateway.service",
    "onceway-uplink.service",
    "onceway-backup.service",
    "onceway-backup.timer",
)

CONTROL = """\
Package: onceway
Version: {version}
Architecture: {architecture}
Maintainer: Onceway <onceway@localhost>
Installed-Size: {size}
Depends: python3.{python}, avrdude, systemd | systemd-standalone-sysusers
Recommends: systemd-timesyncd | time-daemon
Section: net
Priority: optional
Description: device gateway: every reading of a sensor arrives exactly once
 An MQTT broker for sensors on bad links, serial and LoRa, that brings each of their readings
 into a table exactly once, through power cuts and days without an uplink.
"""
LAUNCHER = """\
#!/{home}/bin/python3 -I
from gateway.commands.main import main

main()
"""


def main() -> None:
    (wheel,) = (BUILD / "wheel").glob("onceway-*.whl")
    for target in TARGETS if "--all" in sys.argv else [this_machine()]:
        print(build(target, wheel).relative_to(ROOT))


def build(target: Target, wheel: Path) -> Path:
    version = f"{wheel.name.split('-')[1]}+deb{target.release}"
    tree = BUILD / "deb" / target.name
    shutil.rmtree(tree, ignore_errors=True)
    packages = tree / HOME / f"lib/python3.{target.python}/site-packages"
    _install(packages, target, wheel)
    _environment(tree, target)
    _system_files(tree)
    _documentation(tree, packages, wheel.name.split("-")[1])
    control = tree / "DEBIAN"
    control.mkdir()
    for script in (ROOT / ".setup/debian").iterdir():
        _copy(script, control / script.name, 0o755)
    size = sum(file.lstat().st_size for file in tree.rglob("*") if file.is_file()) // 1024
    (control / "control").write_text(
        CONTROL.format(
            version=version,
            architecture=target.architecture,
            size=size,
            python=target.python,
        )
    )
    package = BUILD / f"onceway_{version}_{target.architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, package],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return package


def _install(packages: Path, target: Target, wheel: Path) -> None:
    """Install the packages of the lock file, each from a wheel whose hash is checked, and Onceway's
    wheel. Then remove files that a gateway does not need.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    locked = ["--require-hashes", "--requirement", ROOT / ".setup/gateway.txt"]
    subprocess.run([*pip, *target.pip, "--target", packages, *locked], check=True)
    subprocess.run([*pip, "--upgrade", "--target", packages, wheel], check=True)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for item in (packages / "botocore/data").iterdir():  # 25 MB of other services
        if item.is_dir() and item.name not in _SERVICES:
            shutil.rmtree(item)
    for item in [packages / "hil", packages / "pygments/lexers"]:  # for reports and source code
        for file in item.rglob("*.py"):
            if file.name not in _KEPT:
                file.unlink()
    for pattern in _SOURCES:
        for file in packages.rglob(pattern):
            file.unlink()
    strip = f"{target.machine}-linux-gnu-strip"
    libraries = [file for file in packages.rglob("*.so") if file.is_file()]
    subprocess.run([strip, "--strip-unneeded", *libraries], check=True)
    for record in packages.glob("*.dist-info/direct_url.json"):
        record.unlink()  # it has a path of the machine that built the wheel


def _environment(tree: Path, target: Target) -> None:
    """Write the files of a virtual environment without pip, and the command `onceway`."""
    home = tree / HOME
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to(f"/usr/bin/python3.{target.python}")
    launcher = home / "bin/onceway"
    launcher.write_text(LAUNCHER.format(home=HOME))
    launcher.chmod(0o755)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/onceway").symlink_to("../lib/onceway/bin/onceway")


def _system_files(tree: Path) -> None:
    systemd = ROOT / "systemd"
    for unit in UNITS:
        _copy(systemd / unit, tree / "usr/lib/systemd/system" / unit)
    _copy(systemd / "onceway.sysusers", tree / "usr/lib/sysusers.d/onceway.conf")
    _copy(systemd / "onceway.tmpfiles", tree / "usr/lib/tmpfiles.d/onceway.conf")
    _copy(systemd / "60-onceway.rules", tree / "usr/lib/udev/rules.d/60-onceway.rules")
    _copy(systemd / "gateway.toml", tree / "usr/share/onceway/gateway.toml")
    for shell, place in (
        ("bash", "bash-completion/completions/onceway"),
        ("zsh", "zsh/vendor-completions/_onceway"),
        ("fish", "fish/vendor_completions.d/onceway.fish"),
    ):
        file = tree / "usr/share" / place
        file.parent.mkdir(parents=True)
        file.write_text(
            subprocess.run(
                [Path(sys.executable).with_name("onceway")],
                env=os.environ | {"_ONCEWAY_COMPLETE": f"source_{shell}"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )


def _documentation(tree: Path, packages: Path, version: str) -> None:
    folder = tree / "usr/share/doc/onceway"
    folder.mkdir(parents=True)
    for name in ("README.md", "SECURITY.md"):
        _copy(ROOT / name, folder / name)
    _pack(folder / "changelog.gz", (ROOT / "CHANGELOG.md").read_bytes())
    parts = sbom.parts(packages)
    (folder / "sbom.cdx.json").write_text(json.dumps(sbom.cyclonedx(parts, version), indent=1))
    (folder / "copyright").write_text(sbom.licences(parts))
    for name, text in pages(version).items():
        _pack(tree / f"usr/share/man/man{name[-1]}/{name}.gz", text.encode())


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _pack(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
