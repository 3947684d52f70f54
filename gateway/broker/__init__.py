"""The broker: sessions, flows, routing and limits. The package uses no socket, no
disk and no clock.

In: bytes of connections, the time, and the news that a commit is on disk. Out: bytes of
connections, commits as plain rows, and orders for the store. `gateway/runtime/engine.py` drives the
broker; in tests, `tests/broker/harness.py` does so.

The files in layers; a file imports only from lower layers, even for types (`make lint`):

    dispatch.py        bytes of a client: one packet or run of packets at a time
    handshake.py       CONNECT and DISCONNECT
    requests.py        SUBSCRIBE and UNSUBSCRIBE
    exchanges.py       PUBLISH, PUBREC and PUBREL of a client, and the answers
    connection.py      one client: packets out, incomplete packets in, and its end

    broker.py          the whole broker; work that is due; effects of a message (settle)
    refusals.py        refusals and internal errors, counted and logged
    admission.py       number and rate of clients
    restart.py         the state after a start
    queue_pages.py     pages of long queues, read from the store
    fan_out.py         routing of a publication: sessions, shared subscriptions, spool, retained
    queue_limits.py    full queues
    retained_changes.py  changes of retained messages, also those of other gateways

    core.py            state that all connections share
    neighbours.py      the broker's interface to peer gateways, for a gateway without any
    effects.py         side effects of a message, carried out after the message
    router.py          finds the subscriptions of a topic, and the next subscriber of a shared one
    session.py         the state of a client: receive_flow.py (Delivery Method B), send_flow.py
                       (its queue), in_flight.py (messages in flight), retained_feed.py

    ledger.py          totals of all queues: bytes, the open changes, orders for the store
    changes.py         contents of the next commit
    delivery.py        a run of messages in one queue, and its rows
    publish_run.py     the run itself, and its topic
    marks.py           anti-replay windows of boards
    pauses.py, pause.py  publishers that were refused for now; lack.py: reasons of a refusal
    spool.py, retained.py, will.py   other destinations of messages
    store_rows.py      the rows of a commit
"""
