"""Web page, Prometheus metrics and health of a gateway, over HTTP.

In: a `Source`, the readable parts of a running gateway. Out: `/metrics` and `/healthz`
(`server.py`) for programs; for people the page (`page.py`, its files in `static/`). Figures are
read for each request; nothing is counted here. aiohttp and the Prometheus client are imported only
where the configuration has a `[web]` or `[page]` section: they take 15 MB, which other gateways
save.
"""
