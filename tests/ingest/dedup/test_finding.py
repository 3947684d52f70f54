"""A Spark task reports the sequences of the rows that it has read as ranges. The order of the rows
does not matter.
"""

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.dedup import finding
from gateway.ingest.dedup.ranges import RANGES, Ranges

COLUMNS = pa.schema(
    [("device", pa.string()), ("incarnation", pa.int64()), ("sequence", pa.int64())]
)
keys = st.tuples(st.sampled_from("ab"), st.integers(7, 8), st.integers(0, 12))


@given(st.lists(st.lists(keys, max_size=9)), st.integers(1, 12))
def test_the_ranges_of_a_task_are_its_rows_and_apart(
    batches: list[list[tuple[str, int, int]]], gathered: int
) -> None:
    rows = [
        pa.RecordBatch.from_pylist(
            [dict(zip(COLUMNS.names, key, strict=True)) for key in batch], COLUMNS
        )
        for batch in batches
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "GATHERED", gathered)
        found = list(Ranges.of(pa.Table.from_batches(finding.ranges_of(rows), RANGES)))
    told = [(*key, number) for key, first, last in found for number in range(first, last + 1)]
    assert len(told) == len(set(told))
    assert set(told) == {key for batch in batches for key in batch}
    assert not {(key, last + 1) for key, _, last in found} & {
        (key, first) for key, first, _ in found
    }


def test_a_task_needs_no_delta_for_it() -> None:
    """Tasks run on workers of a Spark cluster. These have pyarrow and numpy, but not Delta."""
    look = "import sys, gateway.ingest.dedup.finding; print('delta' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert said.stdout == "False\n"
