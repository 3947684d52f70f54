"""A gateway seen from outside: Prometheus metrics and its health, over HTTP.

In: a `Source`, the parts of a running gateway that can be looked at. Out: `/metrics` and
`/healthz`. Figures are read when somebody looks; nothing is counted here. aiohttp and the
Prometheus client are imported with `server`, and only where the configuration has a `[web]`
section: they take 15 MB that a small gateway does not spend.
"""
