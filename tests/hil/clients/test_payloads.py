"""The clients' payloads cover all types, and the judge reads them as the standard says."""

import math
import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from gateway.ingest.payload import skeletons
from gateway.payload.senml import RELATIVE, NotSenml
from gateway.payload.senml import decode as of_product
from hil.clients.payloads import ALIKE, EDGES, number_of, senml_of, text_of_all
from hil.formats.senml import VALUE
from hil.judge.senml import decode

DRAWN = [number_of(random.Random(seed)) for seed in range(2000)]


def test_same_source_of_chance_makes_the_same_payloads() -> None:
    for sequence in range(40):
        one, other = (senml_of("c", sequence, random.Random(7)) for _ in range(2))
        assert one == other


def test_numbers_cover_what_64_bits_can_say() -> None:
    assert {repr(edge) for edge in EDGES} <= {repr(number) for number in DRAWN}
    assert all(map(math.isfinite, DRAWN))
    assert sum(0 < abs(number) < 2.3e-308 for number in DRAWN) > 1  # subnormals
    exponents = sorted({math.frexp(number)[1] for number in DRAWN})
    assert max(other - one for one, other in pairwise(exponents)) < 100


def test_texts_have_characters_of_one_to_four_bytes() -> None:
    texts = [text_of_all(random.Random(seed)) for seed in range(50)]
    assert {len(character.encode()) for text in texts for character in text} == {1, 2, 3, 4}
    assert min(map(len, texts)) == 0
    assert max(map(len, texts)) == 400


def test_each_kind_of_time_and_number_is_decoded_in_bulk() -> None:
    """The ingest decodes payloads of one shape in bulk, if a batch has many of them. The bench
    `ingest` has batches of 100 messages.
    """
    payloads = [senml_of("c", sequence, random.Random(sequence)) for sequence in range(1, 401)]
    times, units, kinds = Counter[str](), Counter[bool](), Counter[str]()
    for start in range(0, 400, 100):
        several = payloads[start : start + 100]
        for plain in skeletons.find(pa.array(several, pa.binary())):
            for time in plain.time:
                times["none" if time == 0 else "relative" if time < RELATIVE else "absolute"] += 1
            units[plain.unit is not None] += len(plain.positions)
            found = skeletons.scan(several[plain.positions[0]])
            assert found
            kinds[found.numbers[VALUE][1]] += len(plain.positions)
    assert set(times) == {"none", "relative", "absolute"}
    assert set(kinds) == {"u1", ">u2", ">u4", ">u8", ">f2", ">f4", ">f8"}
    assert min(*times.values(), *units.values(), *kinds.values()) >= 20, (times, units, kinds)


@pytest.mark.parametrize("sequence", [*range(24), *range(ALIKE, 8 * ALIKE, ALIKE)])
def test_judge_and_product_agree_on_each_shape(sequence: int) -> None:
    """The judge and the product have readers of their own for the same standard. A difference is a
    fault of one reader.
    """
    for seed in range(60):
        payload = senml_of("client-1", sequence, random.Random(seed))
        mine = decode(payload)
        try:
            theirs = of_product(payload)
        except NotSenml:
            assert mine is None, payload
            continue
        assert mine is not None, payload
        assert [
            (one.name, one.unit, repr(one.value), one.text, one.flag, repr(one.sum)) for one in mine
        ] == [
            (one.name, one.unit, repr(one.value), one.text, one.flag, repr(one.sum))
            for one in theirs
        ]
