"""For all tests. Hypothesis tries the same examples each time and takes the time it takes: a
failure shall come from a change, not from luck or a busy machine. `pytest
--hypothesis-profile=default` looks for new ones.
"""

from hypothesis import settings

settings.load_profile("ci")
