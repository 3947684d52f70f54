"""The rig in pytest: `pytest --bench NAME` runs benches as tests. The fixture `run_bench` runs a
bench in a user's own test.

    def test_my_lines(run_bench):
        found = run_bench("my-lines.toml", readings=200)
        assert found.result.verdict == "holds"
        assert found.percentile(99) < 30

In: names of the project's benches, or TOML files. Out: for each bench a test, which passes if the
verdict is `holds`. Otherwise, the test shows the offenders and the folder of the run.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hil.report.findings import Findings

RunBench = Callable[..., "Findings"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onceway")
    group.addoption(
        "--bench",
        action="append",
        default=[],
        metavar="NAME",
        help="Run this bench, and no tests. May be given more than once.",
    )
    group.addoption(
        "--bench-seed", type=int, metavar="N", help="Seed, instead of the benches' own."
    )


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return True if config.getoption("--bench") else None


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    items += [
        BenchItem.from_parent(session, name=f"bench[{name}]", bench=name)
        for name in config.getoption("--bench")
    ]


class BenchDoesNotHoldError(Exception):
    """A verdict other than `holds`. findings: the results of the run. folder: its folder."""

    def __init__(self, findings: "Findings", folder: Path) -> None:
        super().__init__(findings.result.summary())
        self.findings = findings
        self.folder = folder


class BenchItem(pytest.Item):
    """One bench as a test."""

    def __init__(self, *, bench: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._bench = bench
        if self.config.pluginmanager.hasplugin("timeout"):
            # a run ends by itself, after the bench's stall_s without progress
            self.add_marker(pytest.mark.timeout(0))

    def runtest(self) -> None:
        seed = self.config.getoption("--bench-seed")
        folder = self.config._tmp_path_factory.mktemp(Path(self._bench).stem)  # type: ignore[attr-defined]
        found = execute(self._bench, folder, **({} if seed is None else {"seed": seed}))
        if not found.is_kept:
            raise BenchDoesNotHoldError(found, folder)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any
    ) -> Any:
        if not isinstance(excinfo.value, BenchDoesNotHoldError):
            return super().repr_failure(excinfo, *args, **kwargs)
        from rich.console import Console

        from hil.report.text import tell

        console = Console(no_color=True, highlight=False)
        with console.capture() as output:
            tell(console, excinfo.value.findings)
        limits = "".join(f"{limit}\n" for limit in excinfo.value.findings.exceeded)
        return f"{limits}{output.get()}The run is in {excinfo.value.folder}"

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@pytest.fixture
def run_bench(tmp_path: Path) -> RunBench:
    """Return a function that runs a bench and returns the results of the run
    (`hil.report.findings`). Its arguments are a bench's name or file, and new values of top-level
    keys.
    """
    runs = 0

    def run(name: str, **changes: object) -> "Findings":
        nonlocal runs
        runs += 1
        return execute(name, tmp_path / f"run-{runs}", **changes)

    return run


def execute(name: str, folder: Path, **changes: object) -> "Findings":
    """Run a bench. folder: empty, or missing. Raises OncewayError if the bench is invalid."""
    # Not at the top: every pytest run with the plugin would import Arrow and Delta.
    from hil.bench import files as benches
    from hil.bench.plan import plan
    from hil.observe.folder import Folder
    from hil.report.files import write
    from hil.report.findings import find
    from hil.run.display import Display
    from hil.run.run import STAGES, Run

    bench = benches.load(name, **changes)
    made = plan(bench)
    folder.mkdir(parents=True, exist_ok=True)
    place = Folder(folder)
    with Display(name, STAGES, bench.readings, made.breaks) as display:
        asyncio.run(Run(bench, made, place, display).go())
    found = find(place.history)
    write(folder, found)
    return found
