"""For all tests. Hypothesis tries the same examples each time and takes the time it takes: a
failure shall come from a change, not from luck or a busy machine. `pytest
--hypothesis-profile=default` looks for new ones. Some open a thousand connections: a shell allows
fewer files than the system does.
"""

import resource

from hypothesis import settings

settings.load_profile("ci")

_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))
