"""Labels of SenML (RFC 8428, tables 1 and 4)."""

BASE_NAME, BASE_TIME, BASE_UNIT, BASE_VALUE, BASE_SUM = -2, -3, -4, -5, -6
NAME, UNIT, VALUE, TEXT, FLAG, SUM, TIME = range(7)
DATA = 8
LABELS = {
    "bn": BASE_NAME,
    "bt": BASE_TIME,
    "bu": BASE_UNIT,
    "bv": BASE_VALUE,
    "bs": BASE_SUM,
    "n": NAME,
    "u": UNIT,
    "v": VALUE,
    "vs": TEXT,
    "vb": FLAG,
    "s": SUM,
    "t": TIME,
    "vd": DATA,
}
"""Labels of JSON and their numbers in CBOR."""
RELATIVE = 1 << 28
"""A time below this number of seconds is relative to now (RFC 8428, 4.5.3)."""
