"""Options of the library. A value in the build flags takes effect. A value that only the sketch
sets ends the build, with an error that names the option.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from intelhex import IntelHex

from gateway.links.keys import NO_KEY
from gateway.payload import senml
from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import SimulatedBoard
from provisioning.boards import board
from provisioning.identity import Identity

FIRMWARE = Path(__file__).parents[2] / "firmware"
BUILT = FIRMWARE.parent / "build" / "firmware" / "arduino" / "uno"
SKETCH = "thermometer"

OTHER = {
    "OW_KEYS": "0",
    "OW_WATCHDOG": "0",
    "OW_LORA": "1",
    "OW_SX1276": "1",
    "OW_PERSISTENCE": "0",
    "OW_PUBLICATIONS": "0",
    "OW_SUBSCRIPTIONS": "0",
    "OW_JOURNAL_MEMORY": "1",
    "OW_SLOT_CHECK": "0",
    "OW_ANSWERS": "1",
    "OW_DEBUG": "1",
    "OW_TURN_MTU": "64",
    "OW_TURN_QUEUE": "96",
    "OW_LINK_RX_MTU": "20",
    "OW_LINK_WINDOW": "1",
    "OW_LINK_TX_SIZE": "64",
    "OW_MQTT_PACKET_SIZE": "32",
    "OW_FLIGHTS": "2",
    "OW_KEEP_ALIVE_S": "3600",
    "OW_CLOCK_PARTS": "10000",
    "OW_LOG_SIZE": "128",
    "OW_JOURNAL_SLOTS": "30",
    "OW_SESSION_EXPIRY_S": "3600",
    "OW_IDENTITY_PAGE": "0x7C80",
}
"""For each option, a value that is not the default on an Uno."""

DEFAULT = {
    "OW_KEYS": "1",
    "OW_WATCHDOG": "1",
    "OW_LORA": "0",
    "OW_SX1276": "0",
    "OW_PERSISTENCE": "1",
    "OW_PUBLICATIONS": "1",
    "OW_SUBSCRIPTIONS": "1",
    "OW_JOURNAL_MEMORY": "0",
    "OW_SLOT_CHECK": "1",
    "OW_ANSWERS": "0",
    "OW_DEBUG": "0",
    "OW_SEVERAL_BOARDS": "0",
    "OW_TURN_MTU": "96",
    "OW_TURN_QUEUE": "128",
    "OW_LINK_RX_MTU": "24",
    "OW_LINK_WINDOW": "2",
    "OW_LINK_TX_SIZE": "128",
    "OW_MQTT_PACKET_SIZE": "96",
    "OW_FLIGHTS": "1",
    "OW_KEEP_ALIVE_S": "60",
    "OW_CLOCK_PARTS": "200",
    "OW_LOG_SIZE": "0",
    "OW_JOURNAL_SLOTS": "60",
    "OW_SESSION_EXPIRY_S": "0xFFFFFFFF",
    "OW_IDENTITY_PAGE": "0x7D80",
}

OUT_OF_RANGE = {
    "OW_KEYS": "2",
    "OW_DEBUG": "2",
    "OW_SEVERAL_BOARDS": "1",
    "OW_TURN_MTU": "249",
    "OW_TURN_QUEUE": "256",
    "OW_LINK_RX_MTU": "0",
    "OW_LINK_WINDOW": "3",
    "OW_LINK_TX_SIZE": "48",
    "OW_MQTT_PACKET_SIZE": "130",
    "OW_FLIGHTS": "0",
    "OW_KEEP_ALIVE_S": "65536",
    "OW_CLOCK_PARTS": "0",
    "OW_LOG_SIZE": "32",
    "OW_JOURNAL_SLOTS": "100",
    "OW_SESSION_EXPIRY_S": "0x100000000ll",
}

SILENT = {
    "OW_PUBLICATIONS": "its one publication at QoS 2 is left out",
    "OW_LORA": "no radio is on the bus",
    "OW_JOURNAL_MEMORY": "no memory is on the bus",
}
"""Options with which the sketch publishes nothing over the serial line, and why."""

SHAPES = {"OW_KEYS", "OW_LORA", "OW_JOURNAL_MEMORY"}
"""Options that change the library's structures most. `make test` builds with these, and `make soak`
builds with all options.
"""


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    sketch = f"../build/firmware/arduino/uno/{SKETCH}.hex"
    for folder, target in ((FIRMWARE, sketch), (FIRMWARE / "sim", "all")):
        subprocess.run(["make", "-s", "-C", folder, target], check=True)


def build(folder: Path, sketch: str = "", flags: str = "") -> "subprocess.CompletedProcess[str]":
    """Build the example in `folder`. sketch: lines before its `#include`. flags: build flags.
    Object files of the library are reused, so a folder must be used with the same flags each time.
    """
    to = hex_file(folder).parent
    source = folder / "firmware" / "examples" / SKETCH / f"{SKETCH}.ino"
    if not to.exists():
        prepare(folder, with_library=not flags)
    shipped = FIRMWARE / "examples" / SKETCH / f"{SKETCH}.ino"
    source.write_text(sketch + shipped.read_text())
    command = ["make", "-s", "-C", str(folder / "firmware"), f"BUILD={folder}/build"]
    return subprocess.run(
        [*command, f"DEFINES={flags}", hex_file(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


def prepare(folder: Path, *, with_library: bool) -> None:
    """Copy the sources to a folder, with object files that can be reused. with_library: whether the
    object files of the library can be reused.
    """
    for name in ("Makefile", "src", f"examples/{SKETCH}"):
        to = folder / "firmware" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (FIRMWARE / name).is_dir() else shutil.copy2)(FIRMWARE / name, to)
    to = hex_file(folder).parent
    to.mkdir(parents=True)
    shutil.copy2(BUILT / "core.a", to)
    if with_library:
        shutil.copytree(BUILT / "library", to / "library")


def hex_file(folder: Path) -> Path:
    return folder / "build" / "arduino" / "uno" / f"{SKETCH}.hex"


def test_each_option_is_checked() -> None:
    """The list in `ow_options.h` has each option that a build can set. The files of a program
    compare the options in this list.
    """
    checked = set(re.findall(r"(?:NUMBER|WIDE)\((OW_\w+)", read("ow_options.h")))
    assert checked == OTHER.keys() | {"OW_SEVERAL_BOARDS"} == DEFAULT.keys()
    for header in sorted((FIRMWARE / "src").glob("*.h")):
        options = set(re.findall(r"#ifndef (OW_\w+)\n(?!#define \1\n)", header.read_text()))
        assert options <= checked, header.name


def read(name: str) -> str:
    return (FIRMWARE / "src" / name).read_text()


@pytest.mark.few(7)
@pytest.mark.parametrize(("option", "value"), OTHER.items())
def test_an_option_in_the_sketch_alone_ends_the_build(
    option: str, value: str, tmp_path: Path
) -> None:
    done = build(tmp_path, sketch=f"#define {option} {value}\n")
    assert done.returncode != 0
    assert f"{option}_is_{int(value, 0)}_here" in done.stderr
    assert "set_it_in_the_build_flags" in done.stderr
    assert not hex_file(tmp_path).exists()


@pytest.mark.parametrize("lto", ["-flto", "-fno-lto"])
def test_each_way_to_link_compares_the_options(lto: str, tmp_path: Path) -> None:
    """The options are compared if the program is stripped, is linked with section collection, or
    takes the library from an archive. From an archive, the linker takes only the objects that the
    sketch needs: here, only the object with the options.
    """
    sketch = tmp_path / "sketch.c"
    sketch.write_text("#include <Onceway.h>\nint main(void) { return 0; }\n")
    compiler = ["avr-gcc", *AVR, lto]
    library = tmp_path / "options.o"
    avr([*compiler, "-c", str(FIRMWARE / "src" / "ow_options.c"), "-o", str(library)])
    archive = tmp_path / "libOnceway.a"
    avr(["avr-gcc-ar", "rcs", str(archive), str(library)])
    flags = [f"-D{option}={value}" for option, value in OTHER.items()]
    for name, options in (("same", []), ("other", flags)):
        avr([*compiler, *options, "-c", str(sketch), "-o", str(tmp_path / f"{name}.o")])
    for of_library in (library, archive):
        for link in LINKS:
            to = [*link, "-o", str(tmp_path / "program.elf")]
            avr([*compiler, str(tmp_path / "same.o"), str(of_library), *to])
            done = avr([*compiler, str(tmp_path / "other.o"), str(of_library), *to], wrong=True)
            named = set(re.findall(r"(OW_\w+?)_(?:upper_half_)?is_\d+_here", done.stderr))
            assert named == OTHER.keys(), link
            assert "set_it_in_the_build_flags" in done.stderr


AVR = ["-mmcu=atmega328p", "-DF_CPU=16000000UL", "-Os", f"-I{FIRMWARE / 'src'}"]
AVR += ["-ffunction-sections", "-fdata-sections", "-fuse-linker-plugin"]
LINKS = [[], ["-Wl,-s"], ["-Wl,-S"], ["-Wl,--gc-sections"], ["-Wl,--gc-sections,-s,--relax"]]


def avr(command: list[str], *, wrong: bool = False) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == wrong, (command, done.stderr)
    return done


def test_the_options_cost_the_chip_nothing(tmp_path: Path) -> None:
    built = tmp_path / "options.o"
    source = str(FIRMWARE / "src" / "ow_options.c")
    avr(["avr-gcc", *AVR, "-c", source, "-o", str(built)])
    program = tmp_path / "program.elf"
    avr(["avr-gcc", *AVR, "-nostdlib", "-Wl,--gc-sections,-e,0", str(built), "-o", str(program)])
    sizes = avr(["avr-size", str(program)]).stdout.splitlines()[1].split()
    assert sizes[:3] == ["0", "0", "0"]


@pytest.mark.sim
@pytest.mark.parametrize("link", ["-Wl,-s", "-Wl,-S"])
def test_a_stripped_sketch_ends_the_build_too(link: str, tmp_path: Path) -> None:
    prepare(tmp_path, with_library=True)
    done = build(tmp_path, sketch="#define OW_KEYS 0\n", flags=link)
    assert done.returncode != 0
    assert "OW_KEYS_is_0_here" in done.stderr


@pytest.mark.sim
@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param(option, value, marks=() if option in SHAPES else pytest.mark.soak)
        for option, value in OTHER.items()
    ],
)
async def test_an_option_in_the_build_flags_takes_effect(
    option: str, value: str, tmp_path: Path
) -> None:
    """The sketch may set the same value as the build flags. If it sets another value, the build
    fails.
    """
    flags = f"-D{option}={value}"
    done = build(tmp_path, flags=flags)
    assert done.returncode == 0, done.stderr
    if option not in SILENT:
        page = int(value, 0) if option == "OW_IDENTITY_PAGE" else board("uno").identity
        await publishes(hex_file(tmp_path), page, tmp_path)
    done = build(tmp_path, f"#define {option} {value}\n", flags)
    assert done.returncode == 0, done.stderr
    done = build(tmp_path, f"#undef {option}\n#define {option} {DEFAULT[option]}\n", flags)
    assert done.returncode != 0
    assert f"{option}_is_" in done.stderr


async def publishes(firmware: Path, page: int, folder: Path) -> None:
    """Check that the firmware on the simulated Uno publishes three readings of 20 °C (0.7 V). page:
    address of the identity page.
    """
    image = IntelHex(str(firmware))
    image.puts(page, Identity("roof-1", NO_KEY).to_bytes())
    image.write_hex_file(str(folder / "named.hex"))
    gateway = Gateway()
    async with SimulatedBoard(
        folder / "board", firmware=folder / "named.hex", speed="step"
    ) as simulated:
        await simulated.adc(0, 700)
        await converse(simulated, gateway, completed=3, seconds=260)
    readings = [senml.decode(delivery.payload) for delivery in gateway.deliveries]
    assert [[one.name for one in each] for each in readings] == [["roof-1:temperature"]] * 3
    assert [each[0].value for each in readings] == [pytest.approx(20.0, abs=0.5)] * 3


@pytest.mark.few(6)
@pytest.mark.parametrize(("option", "value"), OUT_OF_RANGE.items())
def test_a_value_out_of_range_is_an_error_of_the_compiler(
    option: str, value: str, tmp_path: Path
) -> None:
    done = build(tmp_path, flags=f"-D{option}={value}")
    assert done.returncode != 0
    assert re.search(rf"error: .*{option}", done.stderr), done.stderr


@pytest.mark.parametrize("room", [-1, 0])
@pytest.mark.parametrize("mtu", [64, 96, 137])
def test_a_queue_of_a_radio_holds_the_longest_packet(mtu: int, room: int, tmp_path: Path) -> None:
    options = ["-DOW_LORA=1", f"-DOW_TURN_MTU={mtu}", f"-DOW_TURN_QUEUE={mtu - 1 + room}"]
    source = str(FIRMWARE / "src" / "ow_turn.c")
    command = ["avr-gcc", *AVR, *options, "-c", source, "-o", str(tmp_path / "turn.o")]
    assert ("OW_TURN_QUEUE must" in avr(command, wrong=room < 0).stderr) == (room < 0)


def test_a_sketch_may_say_the_default(tmp_path: Path) -> None:
    sketch = "".join(f"#define {option} {value}\n" for option, value in DEFAULT.items())
    done = build(tmp_path, sketch)
    assert done.returncode == 0, done.stderr
    assert hex_file(tmp_path).read_bytes() == (BUILT / f"{SKETCH}.hex").read_bytes()
