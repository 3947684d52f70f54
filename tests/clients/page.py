"""Write the page `gateway/docs/clients.md` (`python -m tests.clients.page`, part of `make docs`).

In: the results of the last run, in `build/clients/cells.json`; without that file, the committed
results. Out: the page, and the results to commit.
"""

import json
from pathlib import Path

from tests.clients.clients import BUILD, HERE, ROOT

PAGE = ROOT / "gateway" / "docs" / "clients.md"
CELLS, RUN = HERE / "cells.json", BUILD / "cells.json"
HEAD = """# Clients that people use

Written by `make docs` from a run of `python -m tests.clients` (part of `make soak`), which tries
each client. No cell is copied from a manual.

## Brokers

A session that stays, QoS 2. TCP, TLS, WS (WebSocket), WSS: ten messages from the client to itself.
Restart: the broker ends and starts while the client is away; ten messages before, ten after it.
From, to: 1,000 messages from or to the client, over a connection that is cut ten times, at any
byte; *lost* are those that had not arrived a minute after the last one. Where Onceway and Debian's
mosquitto differ, the cell says *Onceway / mosquitto*; *not measured*: the client did not start in
time. –: the client has no such transport.

**"Packet Identifier not found" after a cut: the message has arrived.** If a cut takes Onceway's
PUBCOMP away, the client sends PUBREL again, and Onceway has forgotten the identifier: it answers
0x92, which "is not an error during recovery" (MQTT 5, 3.7.2.1). mosquitto answers with success
there, also for a message that it never had. Onceway has the message, as the cells show: do not
publish it again.

"""
REFUSED = """
## The program's view of a refused message

A server of MQTT 5 refuses each message with this reason code, or ends the first connection with
DISCONNECT 0x97. The number counts how often the client sends the message. **In the
column of a reason code, "published" is a loss**: the program hears of success, and the message is
nowhere.

"""
LIMITS = """
## Wishes of a server

"""
FOOT = """
## Faults of clients, and the setting that avoids each

"""
ADVICE = """\
paho: `is_published()` says nothing of a reason code. `on_publish` has it (`reason_code`, with
`CallbackAPIVersion.VERSION2`): from 0x80 on, publish again. `max_inflight_messages_set` keeps a
server's Receive Maximum; 20 is below Onceway's 1,024.

aiomqtt: `publish` discards the reason code, and no setting brings it back. Data that must be whole
needs [the publisher](../publisher/README.md). After an `MqttError` the message may have arrived:
give it an `incarnation` and a `seq` before you publish again. `max_inflight_messages` keeps a
Receive Maximum.

mqtt.js: The callback of `publish` has the error: publish again there, but not at code 146 (0x92,
see above). It sends all messages at once, whatever the Receive Maximum: wait for callbacks before
you publish more than 1,024.

Node-RED: While it is not connected, `mqtt out` drops messages, and neither `complete` nor `catch`
hears of it: let messages pass only while a node `status` says that `mqtt out` is connected. A
refused message goes to the node `catch`: wire it to another attempt. Put a node `delay` (rate
limit) before `mqtt out` if thousands of messages come at once.

mosquitto_pub: A refused message leaves the exit code 0: read standard error, where 0x92 after a
cut means that the message has arrived. After DISCONNECT the exit code is 4: call it again. With
MQTT 5 `mosquitto_sub` may not come back after a cut: use `-V mqttv311`.

bridge of mosquitto: No program hears of a refused message. At 0x97 Onceway ends the connection
instead, so the bridge keeps the message; give it `max_queued_messages 0`, `cleansession false` and
[rights](../README.md) for its topics. With MQTT 5 its session ends with the connection: write
`bridge_protocol_version mqttv311`. A bridge that receives ends the connection when more messages
are in flight than it wants, again and again: with `max_inflight_messages 0` all arrive once.

rumqttc: Only the packets among the events tell what became of a message: read the reason of
`PubAck`, `PubRec` and `PubComp`. After a cut it takes a repeated PUBREL for a fault and connects
again and again, and a publisher may lose messages. At QoS 1 all 1,000 arrive from and to Onceway,
300 of them twice.

Home Assistant: It says "published" of a refused message, and each connection begins a new session
(no setting changes that) and ignores a Server Keep Alive: a message that arrives while it is away
is lost unless it is retained. Onceway's mirror retains each entity's state.

Paho Go: At QoS 2 `Publish` returns no error for a refused message: compare `ReasonCode` of its
answer with 0x80. After a cut paho.mqtt.golang sends some messages of QoS 2 again, and gives the
program some again: put a number into each message, or use autopaho. While autopaho has no
connection, `Publish` returns an error: publish again.
"""
"""Advice on the page, one paragraph for a client: "NAME: ADVICE". The page shows a paragraph if its
client has a row.
"""

BROKERS = ("MQTT", "TCP", "TLS", "WS", "WSS", "restart", "from, ten cuts", "to, ten cuts")
COLUMNS = {
    "brokers": BROKERS,
    "refused": ("QoS", "0x87", "0x90", "0x97", "DISCONNECT 0x97"),
    "limits": ("Receive Maximum 1", "Server Keep Alive"),
}

Cells = dict[str, dict[str, dict[str, list[str]]]]
"""Results by kind of table, row and column. A row is the name of a client; after "|" comes its
version of MQTT or its QoS. A result has two texts: for Onceway and for mosquitto.
"""


def read(path: Path) -> Cells:
    found: Cells = json.loads(path.read_text())
    return {kind: found.get(kind, {}) for kind in COLUMNS}


def write(cells: Cells, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def bad(texts: list[str]) -> bool:
    """Return whether a result describes a failure. Its text is bold in this case. texts: the text
    for Onceway comes first.
    """
    return bool(texts) and "**" in texts[0]


def worse(before: Cells, now: Cells) -> list[str]:
    """Return the results that were good at Onceway in `before`, and are bad in `now`."""
    return [
        f"{kind}: {row}, {column}: {texts[0]}"
        for kind, rows in now.items()
        for row, columns in rows.items()
        for column, texts in columns.items()
        if bad(texts) and not bad(before[kind].get(row, {}).get(column, ["**new**"]))
    ]


def table(kind: str, rows: dict[str, dict[str, list[str]]]) -> str:
    lines = [("client", *COLUMNS[kind]), ("---",) * (len(COLUMNS[kind]) + 1)]
    for row, columns in sorted(rows.items(), key=lambda one: one[0].lower()):
        name, _, key = row.partition("|")
        cells = {COLUMNS[kind][0]: [key], **columns} if key else columns
        lines.append(
            (name, *(" / ".join(dict.fromkeys(cells.get(it, []))) for it in COLUMNS[kind]))
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(cells: Cells) -> str:
    names = "".join(row for rows in cells.values() for row in rows)
    pairs = (" ".join(part.split()).partition(": ") for part in ADVICE.split("\n\n"))
    advice = "".join(f"- **{one}.** {text}\n" for one, _, text in pairs if one in names)
    parts = (HEAD, table("brokers", cells["brokers"]), REFUSED, table("refused", cells["refused"]))
    return "".join((*parts, LIMITS, table("limits", cells["limits"]), FOOT, advice))


if __name__ == "__main__":
    if source := next((path for path in (RUN, CELLS) if path.exists()), None):
        write(last := read(source), CELLS)
        PAGE.write_text(page(last), encoding="utf8")
