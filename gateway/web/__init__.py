"""A gateway seen from outside: a page to look at, Prometheus metrics and its health, over HTTP.

In: a `Source`, the parts of a running gateway that can be looked at. Out: `/metrics` and `/healthz`
(`server.py`) for programs; for people the page (`page.py`, its files in `static/`). Figures are
read when somebody looks; nothing is counted here. aiohttp and the Prometheus client are imported
only where the configuration has a `[web]` or `[page]` section: they take 15 MB that a small gateway
does not spend.
"""
