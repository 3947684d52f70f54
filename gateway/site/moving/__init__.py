"""Sessions that move between the gateways of a site, and the messages that come late for them.

In: sessions of the broker that leave and come, and what other gateways say of them. Out: sessions,
messages and notices in the broker's queues, all in commits. The broker knows nothing of it but
`gateway/broker/neighbours.py`.

    neighbours.py      the broker's neighbours: what each event here causes
    moving.py          a session leaves, or comes;  passage.py  another gateway, as a session
    following.py       what makes each message reach a session once while it moves
    late_messages.py   messages for a session that has moved;  notices.py  what gateways say
    cuts.py            which messages are for a session that moves, and what ends by that
    journeys.py        all sessions whose move is not over;  journey.py  one of them
    addresses.py       what stands on the line;  doubled.py  what of the spool is on two disks
"""
