"""The broker: sessions, flows, routing, limits and access, without a socket, a disk or a clock.

In: bytes of connections, the time, and the news that a commit is on disk. Out: bytes of
connections, commits as plain rows, and orders for the store. Who drives it is
`gateway/runtime/engine.py`, in the tests too (`tests/broker/harness.py`).

Its floors; a file imports from those below it only, for types too (`make lint`):

    dispatch.py        what the bytes of a client say, one packet or run of packets after the other
    handshake.py       CONNECT and DISCONNECT
    requests.py        SUBSCRIBE and UNSUBSCRIBE
    exchanges.py       PUBLISH, PUBREC and PUBREL of a client, and their answers
    connection.py      one client: packets out, parts of packets in, and its end

    broker.py          everything together; what has come due; what a message caused (settle)
    refusals.py        what clients are refused, and why a connection ended by an error of ours
    admission.py       how many may come, and how fast
    restart.py         the state after a start;  sys_topics.py: its own figures
    queue_pages.py     pages of long queues that come back from the store
    fan_out.py         a publication's ways: sessions, shared subscriptions, spool, retained
    queue_limits.py    what happens when a queue is full
    retained_changes.py  which retained message holds, also among several gateways

    core.py            what all connections share
    neighbours.py      the other gateways, as the broker sees them; here: none
    effects.py         what a message causes beside itself, noted until it is done
    router.py          topics → subscriptions, and whose turn it is in shared ones
    view.py            a session as people see it
    session.py         what is kept for a client: receive_flow.py (Delivery Method B), send_flow.py
                       its queue and what is in flight, retained_feed.py what is still to come

    ledger.py          what all queues know: bytes in all, the open changes, orders for the store
    changes.py         what the next commit will hold;  needed_rows.py which rows it may write over
    delivery.py        a run of messages in one queue; publish_run.py the run itself
    marks.py           which publications of boards were taken, by their full sequence
    pauses.py          publishers that were refused for now; lack.py why a publication is not taken
    spool.py, retained.py, will.py   what else becomes of messages
    topic.py, access.py, peer.py, store_rows.py, message_ids.py
"""
