"""Run one SQL statement in a session as users of the tables have it: spark-submit
tests/ingest/statement.py STATEMENT
"""

import sys

from gateway.ingest.jobs.session import open_session

open_session().sql(sys.argv[1])
