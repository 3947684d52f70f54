"""Bench and plan: a seed gives the same plan every time; a bench that cannot work is refused with
the reason.
"""

from collections import Counter
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.config import load as load_config
from gateway.errors import OncewayError
from hil import examples
from hil.bench.bench import Bench
from hil.bench.files import load, own_benches, replaying
from hil.bench.plan import plan, recorded
from hil.bench.tables import OF_RIG, ClientTable
from hil.cli import replay
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.settings import write_config
from hil.run.shrink import part

SEEDS = st.integers(0, 2**32)


def demo(seed: int, readings: int = 400) -> Bench:
    return load("demo", seed=seed, readings=readings)


@given(seed=SEEDS, readings=st.integers(40, 1000))
def test_the_demo_breaks_everything_it_promises(seed: int, readings: int) -> None:
    made = plan(demo(seed, readings))
    lanes = {lane: [fault.kind for fault in faults] for lane, faults in made.lanes().items()}
    for device in ("uno-1", "uno-2"):
        assert sorted(lanes[f"{device} board"]) == [
            "board-power-cut",
            "board-power-cut",
            "board-power-cut-in-exchange",
        ]
        assert lanes[f"{device} noise"] == ["line-noise"]
        assert all(
            1 <= fault.at <= made.readings[device] - 2 for fault in made.lanes()[f"{device} board"]
        )
    assert lanes["gateway"] == ["gateway-kill"] * 3
    assert lanes["uplink"] == ["uplink-kill"]
    assert lanes["ingest"] == ["ingest-kill"]
    assert lanes["landing copies"] == ["batch-twice"]
    [outage] = made.lanes()["landing"]
    assert outage.at < outage.detail["until"] <= readings
    assert sum(made.readings.values()) == readings
    assert len({fault.id for fault in made.faults}) == len(made.faults)


@given(seed=SEEDS)
def test_same_seed_same_plan(seed: int) -> None:
    assert plan(demo(seed)) == plan(demo(seed))
    assert plan(demo(seed)) != plan(demo(seed + 1))


def test_readings_that_do_not_divide() -> None:
    assert plan(Bench(title="t", boards=3, readings=14)).readings == {
        "uno-1": 5,
        "uno-2": 5,
        "uno-3": 4,
    }


def test_a_bench_without_faults_plans_none() -> None:
    assert plan(Bench(title="t")).faults == ()


@pytest.mark.parametrize(
    ("name", "steps"), [("every-byte", 1), ("every-write", 2), ("every-step", 1)]
)
def test_a_sweep_has_every_point_once_shared_out_among_the_boards(name: str, steps: int) -> None:
    made = plan(load(name))
    count = len(made.faults)
    assert sorted(fault.detail["steps"] for fault in made.faults) == sorted(
        1 + point // steps for point in range(count)
    )
    boards = Counter(fault.target for fault in made.faults)
    assert set(boards) == set(made.readings)
    assert set(boards.values()) == {count // len(made.readings)}


def test_tables_of_one_kind_have_faults_of_their_own() -> None:
    kill = {"kind": "gateway-kill", "count": 3}
    noise = [{"kind": "line-noise", "rate": 0.001 * n, "on": [f"uno-{n}"]} for n in (1, 2)]
    bench = Bench.model_validate({"title": "t", "fault": [kill, kill, *noise]})
    made = plan(bench)
    ids = [fault.id for fault in made.faults]
    assert len(set(ids)) == len(ids) == 8
    kills = {name: [f.at for f in made.faults if name in f.id] for name in ("kill-", "kill.2-")}
    assert len(kills["kill-"]) == len(kills["kill.2-"]) == 3
    assert kills["kill-"] != kills["kill.2-"]
    assert {"uno-1/line-noise-1", "uno-2/line-noise.2-1"} < set(ids)
    assert Bench.model_validate(bench.model_dump()) == bench


@given(seed=SEEDS)
def test_a_nemesis_is_drawn_from_the_seed_and_only_once(seed: int) -> None:
    bench = load("nemesis", seed=seed)
    drawn = [kind for kind in bench.fault if kind.drawn]
    assert bench == load("nemesis", seed=seed)
    assert Bench.model_validate(bench.model_dump()) == bench
    assert 10 < len(drawn) <= 20
    assert all(len(kind.on) == (kind.part in ("board", "line")) for kind in drawn)
    made = plan(bench)
    assert len(made.faults) == len(bench.fault)
    smaller, left = part(bench, made, [fault for fault in made.faults if "noise" in fault.id])
    assert Bench.model_validate(smaller.model_dump()) == smaller
    assert {kind.kind for kind in smaller.fault} == {"line-noise"}
    assert len(left.faults) == len(smaller.fault)


@given(seed=SEEDS, count=st.integers(3, 12))
def test_kills_go_through_their_windows_in_turn(seed: int, count: int) -> None:
    for kind in ("gateway-kill", "uplink-kill", "gateway-power-cut"):
        bench = Bench.model_validate(
            {"title": "t", "seed": seed, "fault": [{"kind": kind, "count": count}]}
        )
        windows = Counter(fault.detail["window"] for fault in plan(bench).faults)
        assert len(windows) == 3
        assert max(windows.values()) - min(windows.values()) <= 1


def test_commands_have_places_of_their_own() -> None:
    made = plan(load("commands"))
    lanes = made.lanes()
    assert [len(lanes[f"{device} commands"]) for device in made.readings] == [6, 6]
    with pytest.raises(ValidationError, match="leave out commands or board-swapped"):
        Bench.model_validate(
            {"title": "t", "commands": {"count": 1}, "fault": [{"kind": "board-swapped"}]}
        )


def test_boards_by_radio_stand_beside_the_others_and_have_no_faults_of_lines() -> None:
    kinds = ("board-power-cut", "board-reset", "board-power-cut-in-turn", "port-unplugged")
    bench = Bench.model_validate(
        {"title": "t", "boards": 1, "air": {}, "fault": [{"kind": kind} for kind in kinds]}
    )
    assert bench.devices == ["uno-1", "lora-1", "lora-2"]
    assert bench.by_air == {"lora-1": 1, "lora-2": 2}
    targets = {kind: {f.target for f in plan(bench).faults if f.kind == kind} for kind in kinds}
    assert targets == {
        "board-power-cut": {"uno-1", "lora-1", "lora-2"},
        "board-reset": {"uno-1"},
        "board-power-cut-in-turn": {"lora-1", "lora-2"},
        "port-unplugged": {"uno-1"},
    }
    assert plan(bench).readings.keys() == set(bench.devices)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"commands": {"count": 1}}, "leave out \\[commands\\] or \\[air\\]"),
        ({"first_sequence": 100}, "have the bundled firmware and a new EEPROM"),
        (
            {"fault": [{"kind": "line-noise", "rate": 0.1, "on": ["lora-1"]}]},
            "lora-1 is not one of them",
        ),
        (
            {"boards": 1, "fault": [{"kind": "board-power-cut-in-turn", "on": ["uno-1"]}]},
            "is for radio boards; uno-1 is not one of them",
        ),
        (
            {"boards": 0, "fault": [{"kind": "line-noise", "rate": 0.1}]},
            "line-noise is for boards on lines, but this bench has none",
        ),
        ({"subscriber": [{"qos": 1}]}, "leave out \\[\\[subscriber\\]\\] or \\[air\\]"),
        (
            {"air": {"foreign": "replay", "trace": "bursts"}},
            "leave out foreign or trace",
        ),
        (
            {"boards": 0, "nemesis": {"rate": 0.1, "kinds": ["board-reset"]}},
            "none of the nemesis's kinds can be drawn",
        ),
        (
            {"air": None, "fault": [{"kind": "board-power-cut-in-turn"}]},
            "add a table \\[air\\]",
        ),
        (
            {"boards": 1, "fault": [{"kind": "gateway-restored"}]},
            "can judge neither clients nor boards on lines",
        ),
        (
            {"boards": 0, "client": [{}], "fault": [{"kind": "gateway-restored"}]},
            "can judge neither clients nor boards on lines",
        ),
    ],
)
def test_impossible_settings_of_radio_boards_are_refused(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Bench.model_validate({"title": "t", "air": {}, **wrong})


REAL = {"port": "/dev/a", "kind": "uno-lora", "link": "lora"}


def test_a_real_board_by_radio_has_a_number_in_the_network() -> None:
    bench = Bench.model_validate(
        {"title": "t", "boards": 1, "air": {"modem": "/dev/m"}, "board": [REAL]}
    )
    assert (bench.devices, bench.by_air) == (["uno-1", "real-1"], {"real-1": 1})
    assert Bench.model_validate(bench.model_dump()) == bench  # as a recorded run has it


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"air": None}, "or leave out both"),
        ({"boards": 1, "board": []}, "or leave out both"),
        ({"board": [REAL | {"kind": "uno"}]}, "no kind of radio board 'uno'"),
        ({"board": [REAL | {"link": "serial"}]}, "no kind of board 'uno-lora'"),
        ({"air": {"modem": "/dev/m", "foreign": "forge"}}, "foreign has no meaning"),
        ({"fault": [{"kind": "board-power-cut"}]}, "is only for simulated boards"),
        ({"fault": [{"kind": "board-reset"}]}, "is for boards on lines"),
    ],
)
def test_impossible_settings_of_real_radio_boards_are_refused(
    wrong: dict[str, object], message: str
) -> None:
    bench = {"title": "t", "boards": 0, "air": {"modem": "/dev/m"}, "board": [REAL]}
    with pytest.raises(ValidationError, match=message):
        Bench.model_validate({**bench, **wrong})


def test_all_shipped_benches_load() -> None:
    assert "demo" in own_benches()
    for name in own_benches():
        plan(load(name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "t"\nseeed = 2', "line 2: there is no key 'seeed' (was 'seed' meant?)"),
        (
            'title = "t"\n[[subscriber]]\nfilter = "sensors/#/x"',
            "line 3: [[subscriber]] number 1: filter = 'sensors/#/x': a # must be the whole last"
            " level, and a + a whole level",
        ),
        (
            'title = "t"\nsubscriber = "x"',
            "line 2: subscriber is a table of its own: write a line [[subscriber]], and its keys"
            " below it",
        ),
        (
            'title = "t"\nnemesis = 2',
            "line 2: nemesis is a table of its own: write a line [nemesis], and its keys below it",
        ),
        (
            'title = "t"\nboard = 2',
            (
                "line 2: board = 2: real boards are tables, [[board]]; `boards` is the number of"
                " simulated boards"
            ),
        ),
        ("boards = 2", "title is missing"),
        (
            'title = "t"\nboards = 0',
            "there is no board: boards is 0, and there is no table [[board]]",
        ),
        (
            'title = "t"\n[[board]]\nport = "/dev/a"\nkind = "una"',
            "line 4: [[board]] number 1: there is no kind of board 'una'; there are uno, nano, ",
        ),
        (
            'title = "t"\n[[board]]\nprot = "/dev/a"',
            "line 3: [[board]] number 1: there is no key 'prot' (was 'port' meant?)",
        ),
        (
            'title = "t"\n[[client]]\nqos = 0\n[[fault]]\nkind = "gateway-kill-at-each-step"\non ='
            ' ["client-1"]',
            "gateway-kill-at-each-step is for 'client-1', which is not one of uno-1, uno-2",
        ),
        (
            'title = "t"\n[[board]]\nkind = "uno"',
            "line 2: [[board]] number 1: a board has either a `port`, if it is a real one, or a",
        ),
        (
            'title = "t"\n[[board]]\nport = "/dev/a"\nsketch = "b.hex"',
            "line 2: [[board]] number 1: a board has either a `port`, if it is a real one, or a",
        ),
        (
            'title = "t"\n[[board]]\nsketch = "b.hex"\nkind = "nano"',
            "line 2: [[board]] number 1: a board without port is a simulated Uno; omit link, kind",
        ),
        (
            'title = "t"\n[[board]]\nsketch = "b.hex"\n[[fault]]\nkind = "board-watchdog"',
            "board-watchdog is only for simulated boards with the project's sensor firmware; a",
        ),
        (
            'title = "t"\n[[board]]\nsketch = "b.hex"\n[commands]',
            "which commands a sketch obeys; leave out [commands] or [[board]]",
        ),
        (
            'title = "t"\n[[client]]\nqos = 2\n[[client]]\nqos = 3',
            "line 5: [[client]] number 2: qos = 3: input should be 0, 1 or 2",
        ),
        (
            'title = "t"\n[[board]]\nport = "/dev/a"\n[commands]',
            "the rig cannot see whether a real board has obeyed",
        ),
        (
            'title = "t"\n[[board]]\nport = "/dev/a"\n[[fault]]\nkind = "board-power-cut"',
            (
                "board-power-cut is only for simulated boards with the project's sensor firmware; a"
                " [[board]] can have board-reset and, if simulated or with a power switch,"
                " board-switched-off"
            ),
        ),
        (
            (
                'title = "t"\n[[board]]\nport = "/dev/a"\npower = { labgrid = "lab.yaml"'
                ' }\n[[board]]\nport = "/dev/b"\n[[fault]]\nkind = "board-switched-off"'
            ),
            "board-switched-off needs a power switch, but real-2 has none",
        ),
        ('title = "t"\nreadings = 4', "2 boards need at least 8 readings, not 4"),
        (
            'title = "t"\nfault = "noise"',
            "line 2: fault is a table of its own: write a line [[fault]], and its keys below it",
        ),
        (
            'title = "t"\n[fault]\nkind = "gateway-kill"',
            "line 2: fault is a table of its own: write a line [[fault]], and its keys below it",
        ),
        ('title = "t"\nlimits = 3', "line 2: limits is a table of its own: write a line [limits]"),
        (
            'title = "t"\nseeed = 2\nreadings = "many"',
            "the bench has 2 mistakes:\n    line 2: there is no key 'seeed' (was 'seed' meant?)\n"
            "    line 3: readings = 'many': ",
        ),
        (
            'title = "t"\n[limits]\ndelay = 3',
            "line 3: [limits]: there is no key 'delay' (was 'delay_p99_s' meant?)",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kil"',
            "there is no kind 'gateway-kil' (was 'gateway-kill' meant?)",
        ),
        ('title = "t"\n[[fault]]\ncount = 2', "line 2: [[fault]] number 1: it has no kind"),
        (
            (
                'title = "t"\n[[fault]]\nkind = "uplink-kill"\n[[fault]]\nkind ='
                ' "gateway-kill"\ncont = 2'
            ),
            (
                "line 6: [[fault]] number 2 (gateway-kill): there is no key 'cont' (was 'count'"
                " meant?)"
            ),
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-trace"\ntrace = "none"',
            "cannot read the recording",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kill"\nbetween = [0.5, 0.1]',
            "between must be two shares of the run",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-noise"\nrate = 2',
            (
                "line 4: [[fault]] number 1 (line-noise): rate = 2: input should be less than or"
                " equal to 0.1"
            ),
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-bursts"\n[[fault]]\nkind = "line-bursts"',
            "two line-bursts faults are for the line of uno-1; name other boards in `on`",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-cut"\non = ["uno-9"]',
            "line-cut is for 'uno-9', which is not one of uno-1, uno-2",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kill-at-release"\n[[subscriber]]\nqos = 1',
            "gateway-kill-at-release needs a table [[subscriber]] with qos = 2",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "other-broker-restart"',
            "other-broker-restart needs another broker; add a table [bridge]",
        ),
        (
            'title = "t"\n[[subscriber]]\nthere = true',
            "[[subscriber]] with there = true needs another broker; add a table [bridge]",
        ),
        (
            'title = "t"\n[bridge]\nchanges = 0',
            "line 3: [bridge]: changes = 0",
        ),
        (
            'title = "t"\n[bridge]\nchanges = 15',
            "line 2: bridge = {'changes': 15}: changes must be at least 16: twice `states`",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "uplink-kill"\non = ["uno-1"]',
            "uplink-kill breaks no board, so `on` has no meaning",
        ),
        (
            'title = "t"\n[nemesis]\nrate = 0.1\nkinds = ["gateway-kil"]',
            "there is no kind 'gateway-kil' to draw; there are batch-damaged, ",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kill"\nwindow = "nowhere"',
            "window = 'nowhere': input should be 'any', 'received', 'committed' or 'acknowledged'",
        ),
        (
            (
                'title = "t"\nboards = 1\n[[fault]]\nkind ='
                ' "gateway-kill-at-each-step"\n[[fault]]\nkind = "disk-full"'
            ),
            "counts the steps of a gateway that nothing else breaks; leave out disk-full",
        ),
        (
            'title = "t"\n[commands]\ncout = 2',
            "line 3: [commands]: there is no key 'cout' (was 'count' meant?)",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kill"\ncount = 0',
            "count = 0: input should be greater than or equal to 1",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "gateway-kill"\ncount = 1000000',
            "count = 1000000: input should be less than or equal to 10000",
        ),
        (
            'title = "t"\n[commands]\ncount = 70000',
            "[commands]: count = 70000: input should be less than or equal to 1000",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "clock-jump"\nhours = inf',
            "hours = inf: input should be less than or equal to 876000",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-trace"\ntrace = "bursts"\npace = 0',
            "line 5: [[fault]] number 1 (line-trace): pace = 0: input should be greater than 0",
        ),
        ('title = "t"\n[commands]\nkind = "command"', "line 3: [commands]: there is no key 'kind'"),
        ("title = ", "the bench is not valid TOML"),
        (
            'title = "t"\nfault = ["line-noise", "line-cut"]',
            "bench.toml: line 2: fault is a table of its own: write a line [[fault]], and its keys"
            " below it",
        ),
        (
            'title = "t"\nclient = [3]',
            "line 2: client is a table of its own: write a line [[client]], and its keys below it",
        ),
        (
            'title = "t"\n[nemesis]\nrate = 0.1\nkinds = "some"',
            "bench.toml: line 4: [nemesis]: kinds = 'some': write \"all\", or a list of kinds such"
            ' as ["gateway-kill"]',
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-noise"\nrate = 0.01\nbetween = [0.4, 0.5]',
            "line 3: [[fault]] number 1 (line-noise): it lasts the whole run, so `between` has no"
            " meaning; leave it out",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "line-bursts"\ncount = 3',
            "line 3: [[fault]] number 1 (line-bursts): it lasts the whole run, so `count` has no",
        ),
        (
            'title = "t"\n[[fault]]\nkind = "ingest-kill"\ncount = 3\nbetween = [0.4, 0.5]',
            "(ingest-kill): it comes after the first append, so `between` has no meaning",
        ),
        (
            'title = "t"\n[limits]\n[config.uplink]\nretry_s = 3\nbatch_cont = 7',
            "bench.toml: line 5: [config]: uplink.batch_cont: there is no such key."
            " Did you mean 'batch_count'?",
        ),
        (
            'title = "t"\n[config]\nlog.level = "info"\nuplink = { batch_count = -7 }',
            "line 4: [config]: uplink.batch_count = -7: ",
        ),
        ('title = "t"\n[config.uplnk]\nx = 1', "line 2: [config]: uplnk: there is no such key"),
        (
            'title = "t"\nseeed = 2\n[config.uplink]\nbatch_count = 0',
            "the bench has 2 mistakes:\n    line 2: there is no key 'seeed' (was 'seed' meant?)\n"
            "    line 4: [config]: uplink.batch_count = 0: ",
        ),
    ],
)
def test_a_bad_bench_names_key_value_and_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(text)
    with pytest.raises(OncewayError) as caught:
        load(str(path))
    assert message in str(caught.value)
    assert caught.value.exit_code == 1
    assert str(path) in str(caught.value) or "recording" in message


def test_bench_of_real_boards_has_no_simulated_board_by_default(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    real = '[[board]]\nport = "/dev/a"\n[[board]]\nport = "/dev/b"\nkind = "nano"\n'
    path.write_text('title = "t"\n' + real)
    assert plan(load(str(path))).readings == {"real-1": 200, "real-2": 200}
    path.write_text('title = "t"\nboards = 1\nreadings = 20\n' + real)
    assert plan(load(str(path))).readings == {"uno-1": 7, "real-1": 7, "real-2": 6}
    assert plan(load("resets")).readings.keys() == {"uno-1", "uno-2"}


def test_publications_of_clients_count_for_faults_of_the_site(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bench.toml"
    clients = "".join(f"[[client]]\nqos = {qos}\nmessages = 500\n" for qos in (0, 1))
    path.write_text(
        'title = "t"\nreadings = 100\n[[fault]]\nkind = "gateway-kill"\ncount = 50\n[[fault]]\nkind'
        ' = "line-cut"\n' + clients
    )
    faults = plan(load(str(path))).faults
    # publications at QoS 0 may never arrive there
    assert 500 < max(fault.at for fault in faults if fault.target == "gateway") <= 600
    assert max(fault.at for fault in faults if fault.target != "gateway") <= 50


def test_mistake_in_a_fault_points_to_the_kinds(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    for text, hinted in (("seeed = 2", False), ('[[fault]]\nkind = "gateway-kil"', True)):
        path.write_text(f'title = "t"\n{text}')
        with pytest.raises(OncewayError) as caught:
            load(str(path))
        assert ("onceway hil faults" in str(caught.value)) == hinted


def test_misspelt_bench_gets_a_suggestion() -> None:
    with pytest.raises(OncewayError, match=r"was 'gateway-kills' meant\?"):
        load("gateway-kils")


def test_no_such_bench() -> None:
    with pytest.raises(
        OncewayError, match=r"cannot read the bench.*Benches that come with the project: .*demo"
    ):
        load("no-such-bench")


@pytest.mark.parametrize("name", sorted(own_benches()))
def test_a_recorded_run_is_planned_as_it_was(tmp_path: Path, name: str) -> None:
    bench = load(name, seed=7)
    history = History(tmp_path / "history.jsonl")
    history.add("rig", "run", version="1", bench=bench.model_dump(), plan=plan(bench).to_json())
    history.close()
    assert recorded(tmp_path / "history.jsonl") == (bench, plan(bench))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"t":1,"hop":"rig","event":"end"}', "does not begin with a run"),
        (
            '{"t":1,"hop":"rig","event":"run","bench":{"faults":{}},"plan":{}}',
            "recorded by another version",
        ),
    ],
)
def test_a_history_that_cannot_be_replayed(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "history.jsonl").write_text(line + "\n")
    with pytest.raises(OncewayError, match=message):
        recorded(tmp_path / "history.jsonl")


def test_a_bench_without_an_ingest_has_none_to_break() -> None:
    with pytest.raises(ValidationError, match="batch-twice needs an ingest"):
        Bench.model_validate({"title": "t", "until": "batch", "fault": [{"kind": "batch-twice"}]})


def test_another_recorded_link_in_place_of_the_benchs_own() -> None:
    bench = replaying(load("recorded-outages"), "bursts")
    assert [kind.model_dump().get("trace") for kind in bench.fault] == ["bursts", None]
    assert replaying(load("demo"), "bursts") == load("demo")
    radio = load("radio-outages")
    changed = replaying(radio, "bursts").air
    assert radio.replays
    assert radio.air
    assert changed == radio.air.model_copy(update={"trace": "bursts"})
    with pytest.raises(OncewayError, match="cannot read the recording"):
        replaying(load("recorded-outages"), "none.jsonl")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"uplink": {"batch_cont": 7}}, "batch_cont"),
        ({"uplink": {"batch_count": -7}}, "batch_count"),
        ({"uplnk": {"batch_count": 7}}, "uplnk"),
    ],
)
def test_settings_that_the_gateway_refuses_are_refused_before_a_replay(
    tmp_path: Path, config: dict[str, dict[str, int]], message: str
) -> None:
    bench = Bench.model_validate({"title": "t", "config": config})
    history = History(tmp_path / "history.jsonl")
    history.add("rig", "run", bench=bench.model_dump(), plan=asdict(plan(bench)))
    with pytest.raises(OncewayError, match=rf"{message}.*Look at \[config\] of the bench"):
        replay(history.path)


def test_a_bench_has_its_own_settings_of_gateway_and_uplink(tmp_path: Path) -> None:
    bench = Bench(title="t", config={"uplink": {"batch_count": 7}, "limits": {"sessions": 5}})
    folder = Folder(tmp_path)
    write_config(folder, ["uno-1", "uno-2"], bench, 1883)
    made = load_config(folder.config)
    assert (made.uplink.batch_count, made.uplink.batch_age_s, made.limits.sessions) == (7, 2, 5)
    assert [section.port for section in made.serial] == [
        str(folder.port("uno-1")),
        str(folder.port("uno-2")),
    ]
    assert made.spool.topics == ["sensors/#"]


SITE = [{"name": "attic"}, {"name": "barn"}]
STRICT = {"program": "strict"}


def test_boards_and_clients_are_dealt_over_the_gateways_of_a_site() -> None:
    bench = Bench.model_validate(
        {"title": "t", "boards": 3, "gateway": SITE, "client": [{**STRICT, "count": 2}]}
    )
    assert bench.homes == {
        "uno-1": "attic",
        "uno-2": "barn",
        "uno-3": "attic",
        "client-1": "attic",
        "client-2": "barn",
    }
    assert Bench.model_validate(bench.model_dump()) == bench  # as a recorded run has it


def test_boards_by_radio_are_dealt_over_the_gateways_and_only_they_roam() -> None:
    kinds = [{"kind": "board-roams", "count": 2}, {"kind": "board-replugged"}]
    told = {"title": "t", "boards": 1, "air": {}, "gateway": SITE, "fault": kinds}
    bench = Bench.model_validate(told)
    assert bench.homes == {"uno-1": "attic", "lora-1": "barn", "lora-2": "attic"}
    assert sorted((fault.target, fault.kind) for fault in plan(bench).faults) == [
        ("lora-1", "board-roams"),
        ("lora-1", "board-roams"),
        ("lora-2", "board-roams"),
        ("lora-2", "board-roams"),
        ("uno-1", "board-replugged"),
    ]


def test_gateway_fault_strikes_a_used_or_named_gateway() -> None:
    kinds = [{"kind": "gateway-kill", "count": 9}, {"kind": "gateway-dies", "on": ["barn"]}]
    bench = Bench.model_validate({"title": "t", "gateway": SITE, "fault": kinds})
    where = {
        kind: {fault.where for fault in plan(bench).faults if fault.kind == kind}
        for kind in ("gateway-kill", "gateway-dies")
    }
    assert where == {"gateway-kill": {"uno-1", "uno-2"}, "gateway-dies": {"barn"}}
    assert plan(bench) == plan(bench)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gateway": SITE[:1]}, "a site has at least two gateways"),
        ({"gateway": [*SITE, SITE[0]]}, "have the same name"),
        ({"gateway": [{"name": "At tic"}, SITE[1]]}, "should match pattern"),
        ({"config": {"gateway": {"name": "x"}}}, "leave out gateway.name of \\[config\\]"),
        ({"air": {"trace": "bursts"}}, "trace is for a single gateway"),
        ({"air": {"foreign": "forge"}}, "foreign is for a single gateway"),
        ({"air": {"sent_before": 9}}, "sent_before is for a single gateway"),
        (
            {"air": {"modem": "/dev/m"}, "board": [REAL]},
            "leave out \\[\\[board\\]\\] or \\[\\[gateway\\]\\]",
        ),
        (
            {"air": {}, "fault": [{"kind": "gateway-dies"}]},
            "died with a gateway only for boards on lines",
        ),
        ({"fault": [{"kind": "board-roams"}]}, "add a table \\[air\\]"),
        (
            {"air": {}, "fault": [{"kind": "board-roams", "on": ["uno-1"]}]},
            "board-roams is for radio boards; uno-1 is not one of them",
        ),
        (
            {"air": {}, "fault": [{"kind": "board-replugged", "on": ["lora-1"]}]},
            "board-replugged is for boards on lines; lora-1 is not one of them",
        ),
        (
            {"gateway": [], "air": {}, "fault": [{"kind": "board-roams"}]},
            "board-roams needs a site of several gateways",
        ),
        ({"subscriber": [{}]}, "leave out \\[\\[subscriber\\]\\]"),
        ({"commands": {"count": 1}}, "leave out \\[commands\\]"),
        ({"fault": [{"kind": "clock-jump"}]}, "clock-jump is for one gateway"),
        ({"fault": [{"kind": "gateway-kill", "on": ["uno-1"]}]}, "which is not one of attic, barn"),
        ({"client": [{}], "fault": [{"kind": "client-moves"}]}, "strict"),
        ({"fault": [{"kind": "crowd-moves"}]}, "strict"),
        ({"client": [STRICT, {}], "fault": [{"kind": "crowd-moves"}]}, "and qos = 2 \\["),
        ({"fault": [{"kind": "rolling-restart", "on": ["barn"]}]}, "`on` has no meaning"),
        ({"fault": [{"kind": "gateway-dies", "count": 2}]}, "at least one gateway must remain"),
        (
            {"config": {"site": {"copies": 2}}, "fault": [{"kind": "gateway-dies"}]},
            "at least two gateways must remain",
        ),
        (
            {"client": [STRICT], "fault": [{"kind": "client-moves", "on": ["uno-1"]}]},
            "not one of client-1",
        ),
        (
            {"gateway": [], "fault": [{"kind": "partition"}]},
            "partition needs a site of several gateways",
        ),
    ],
)
def test_impossible_settings_of_a_site_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Bench.model_validate({"title": "t", "gateway": SITE, **wrong})


def test_member_knows_the_others_by_configured_addresses(
    tmp_path: Path,
) -> None:
    bench = Bench.model_validate({"title": "t", "gateway": SITE})
    members = {"attic": "127.0.0.1:7001", "barn": "127.0.0.1:7002"}
    folder = Folder(tmp_path).of("barn")
    write_config(folder, ["uno-1"], bench, None, members)
    made = load_config(folder.config)
    assert made.gateway.name == "barn"
    assert made.site is not None
    assert (made.site.members, made.site.bind) == (members, "127.0.0.1:7002")
    assert made.serial[0].port == str(tmp_path / "ports-barn" / "uno-1")


def test_each_gateway_of_a_site_has_a_modem_of_its_own_and_knows_all_boards(
    tmp_path: Path,
) -> None:
    bench = Bench.model_validate({"title": "t", "boards": 1, "air": {}, "gateway": SITE})
    members = {"attic": "127.0.0.1:7001", "barn": "127.0.0.1:7002"}
    for name in members:
        folder = Folder(tmp_path).of(name)
        write_config(folder, bench.devices, bench, None, members)
        [radio] = load_config(folder.config).lora
        assert radio.port == str(tmp_path / f"ports-{name}" / "gateway")
        assert radio.boards == {"lora-1": 1, "lora-2": 2}


def test_missing_firmware_is_reported_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('title = "t"\nfirmware = "none.hex"')
    with pytest.raises(OncewayError, match=r"none\.hex: there is no such firmware file"):
        load(str(path))


def test_missing_sketch_is_reported_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('title = "t"\n[[board]]\nsketch = "none.hex"')
    with pytest.raises(OncewayError, match=r"none\.hex: there is no such firmware file"):
        load(str(path))


@pytest.mark.parametrize("key", ["first_row", "first_batch"])
def test_used_store_is_for_a_bench_without_ingest(key: str) -> None:
    assert Bench.model_validate({"title": "t", "until": "batch", key: 7}).used_store
    assert not Bench.model_validate({"title": "t", "until": "batch"}).used_store
    with pytest.raises(ValidationError, match='only with one gateway and until = "batch"'):
        Bench.model_validate({"title": "t", key: 7})


def test_missing_program_is_reported_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('title = "t"\n[[client]]\ncommand = ["./no-such-program"]')
    with pytest.raises(OncewayError, match=r"no-such-program: there is no such program, or it can"):
        load(str(path))


@pytest.mark.parametrize("key", OF_RIG)
def test_foreign_program_takes_no_key_of_the_rig(key: str) -> None:
    values = {"program": "strict", "hops": True, "payload": "senml", "identity": False}
    table = {"command": ["true"], "program": "strict", key: values.get(key, 7)}
    with pytest.raises(ValidationError, match="is for the rig's own programs; remove it"):
        ClientTable.model_validate(table)


def test_bench_of_foreign_programs_loads() -> None:
    bench = load(str(Path(examples.__file__).parent / "own-programs.toml"))
    assert [bool(table.command) for table in bench.clients.values()] == [True, True]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the HEX file is empty or too large"),
        (b"\x7fELF\x02\x01", "not an Intel HEX file"),
        (b":00000001FF\n", "the HEX file is empty or too large"),
        (b":020000040001F9\n:0100000000FF\n:00000001FF\n", "the HEX file is empty or too large"),
        (b":0100000000FE\n:00000001FF\n", "not an Intel HEX file"),
    ],
    ids=["empty", "an ELF file", "an end only", "beyond the chip", "a wrong checksum"],
)
def test_a_firmware_that_no_chip_can_take_is_reported_with_the_other_mistakes(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (hex_file := tmp_path / "mine.hex").write_bytes(content)
    path = tmp_path / "bench.toml"
    path.write_text(
        f'title = "t"\nfirmware = "{hex_file}"\n'
        '[[fault]]\nkind = "line-trace"\ntrace = "none.csv"\n'
    )
    with pytest.raises(OncewayError) as refused:
        load(str(path))
    first, *lines = str(refused.value).splitlines()
    assert first == f"{path}: the bench has 2 mistakes:"
    assert any("none.csv: cannot read the recording" in line for line in lines)
    assert any(f"{hex_file}: {why}" in line for line in lines)
    path.write_text(f'title = "t"\nfirmware = "{hex_file}"\nreadings = 0\nboards = "two"\n')
    with pytest.raises(OncewayError) as refused:
        load(str(path))
    first, *lines = str(refused.value).splitlines()
    assert first == f"{path}: the bench has 3 mistakes:"
    assert sum(f"{hex_file}: {why}" in line for line in lines) == 1


def test_six_seeds_have_each_pair_of_options_with_both_one_and_neither() -> None:
    runs = []
    for seed in range(6):
        bench = load("options", seed=seed)
        assert Bench.model_validate(bench.model_dump()) == bench
        drawn = {
            f"{section}.{key}": v for section, of in bench.config.items() for key, v in of.items()
        }
        always = {"home_assistant.prefix": "homeassistant"}
        assert drawn.items() <= (bench.options | always).items()
        runs.append([key in drawn for key in bench.options])
    for one, other in combinations(range(len(runs[0])), 2):
        assert len({(run[one], run[other]) for run in runs}) == 4
