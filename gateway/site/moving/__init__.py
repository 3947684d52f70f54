"""Sessions that move between the gateways of a site, and the messages that follow them.

In: outbound and inbound sessions of the broker, and notices of other gateways. Out: sessions,
messages and notices in the broker's queues, always in commits. The broker sees only
`gateway/broker/neighbours.py`.

  neighbours.py      the broker's neighbours: reactions to events at this gateway
  moving.py          outbound and inbound sessions, and delivery of each message once meanwhile
  late_messages.py   messages for a session that has moved;  notices.py  notices of gateways
  cuts.py            which messages are for a session that moves, and the end of a move
  session_moves.py   sessions with an unfinished move, and forwarders
  peer_gateway.py    a peer gateway, as a session of this broker
  addresses.py       encoding of addresses and notices;  replicated.py  spool rows on two disks
"""
