"""The broker: sessions, flows, routing, limits and access, without a socket, a disk or a clock
(`tests/broker/harness.py` drives it so).

In: bytes of connections, the time, and the news that a commit is on disk. Out: bytes of
connections, commits as plain rows, and orders for the store. Who drives it is
`gateway/service/engine.py`.

    broker.py          everything together; what has come due
    connection.py      one client (peer.py): bytes in, bytes out, and its end; incoming.py what the
                       bytes say: handshake.py CONNECT and DISCONNECT, publishing.py PUBLISH and
                       what follows it, requests.py SUBSCRIBE and UNSUBSCRIBE
    session.py         what is kept for a client: inbound.py its receive flow (Delivery Method B),
                       outbound.py its send flow and queue
    router.py          topics → subscriptions; shared.py whose turn it is; routing.py a
                       publication's ways; burst.py many of them at once; delivery.py one of them in
                       one queue; numbers.py packet identifiers
    retained.py, will.py, spool.py, sys_topics.py          what else becomes of messages, and where
                                                           others come from
    effects.py         what a message causes beside itself, carried out after it (Broker.settle)
    access.py          who may do what; admission.py how many may come; queue_limits.py what a full
                       queue costs; refusals.py, throttle.py how that is counted and said
    changes.py         what the next commit will hold; commit.py its rows; rows.py which of them are
                       no longer needed; paging.py queues longer than memory should hold;
                       recovered.py, restore.py the state after a start
    statistics.py, census.py, view.py                      figures, and a look at sessions
"""
