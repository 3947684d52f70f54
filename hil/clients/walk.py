"""`python -m hil.clients.walk`: a program that tries options of MQTT 5 at a broker. Each record has
a script of a few clients on plain sockets. All scripts run at once.

In: broker, and records of `walk.toml`. Out: JSON Lines on standard output: `tried` for each record,
with what each of its clients saw. After a script, its sessions end and its retained messages are
deleted, unless the record has a script `after`, for the end of the run.

Lines of a script are `CLIENT VERB …`, or `wait SECONDS`. `T` stands for a topic of this record.

- `connect`: `id=` (default: one of its own), `clean=0`, `keep_alive=`, `will=PAYLOAD` (to T/will),
  `will_qos=`, `will_retain=1`, `shows=` (properties of CONNACK to report), and properties;
- `subscribe FILTER`: `qos=`, `handling=`, `no_local`, `as_published`, and properties;
- `unsubscribe FILTER`; `publish TOPIC PAYLOAD`: `qos=`, `repeat=`,
  `size=` (times that the payload is repeated), `retain`, and properties;
- `disconnect`: `reason=`, and properties; `drop` closes the socket without DISCONNECT;
- `ping`; `until N` waits until the client has seen N lines;
- `mute` and `unmute`: between them, the client answers no PUBLISH and no PUBREC.

After each verb, the client waits for the answer. A client reports lines: each PUBLISH with all its
properties, `unmuted`, and differences from its requests: a session, a refusal, another QoS, the end
of the connection.
"""

import select
import shlex
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any

import typer

from hil.clients import records
from hil.clients.options import Port
from hil.clients.telling import tell
from hil.formats.packets import (
    Answer,
    Connack,
    Connect,
    Cutter,
    Disconnect,
    Kind,
    Other,
    Packet,
    PacketError,
    Properties,
    Property,
    Publish,
    Suback,
    Subscribe,
    first,
    write,
)

ANSWER_S = 20.0  # longest wait for an answer, and for what must be seen
QUIET_S = 0.4  # s without a packet, after which nothing more comes
PING_S = 3.0  # s between two PINGREQ; a client with a Keep Alive of 1 s is silent for too long
AWAY_S = 0.3  # s in which the broker notices that a connection has ended
IDENTIFIER = 9  # of SUBSCRIBE and UNSUBSCRIBE; those of PUBLISH count from 10
REFUSED = 0x80

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Port,
    record: Annotated[list[str], typer.Option(help="Name of a record.")],
    after: Annotated[bool, typer.Option("--after", help="Their scripts `after`.")] = False,
) -> None:
    """Try the records."""
    known = records()
    with ThreadPoolExecutor(len(record)) as pool:
        scripts = [pool.submit(Script(port, known[name], after).run) for name in record]
        for name, script in zip(record, scripts, strict=True):
            tell("tried", record=name, after=after, saw=script.result())


class Client:
    """A client of a script. saw: its lines, in order. name: its client identifier."""

    def __init__(self, port: int, name: str, topic: str) -> None:
        self.saw: list[str] = []
        self.name = name
        self.socket: socket.socket | None = None
        self.awaited: set[tuple[Kind, int]] = set()
        self.retained: set[str] = set()
        self._port, self._topic = port, topic
        self._unanswered: list[Publish | Answer] | None = None
        self._next = IDENTIFIER

    def connect(self, words: list[str]) -> None:
        keys, properties = _keys(words, ("id", "clean", "keep_alive", "shows"), "will")
        self._qos, self._shows = 0, keys.get("shows", "").split(",")
        self._aliases: dict[int, str] = {}
        self._most = first(properties, Property.TOPIC_ALIAS_MAXIMUM, 0)
        will = None
        if "will" in keys:
            options = [word[5:] for word in words if word[:5] == "will_"]
            _, of_will = _keys(options, ("qos", "retain"))
            topic, payload = f"{self._topic}/will", keys["will"].encode()
            qos, retain = int(keys.get("will_qos", 0)), keys.get("will_retain") == "1"
            will = Publish(topic, payload, qos, retain=retain, properties=of_will)
            self.retained |= {topic} if retain else set()
        self.close()
        self._cutter, self._pinged = Cutter(), time.monotonic()
        try:
            self.socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
        except OSError as error:
            self.saw.append(str(error))
            return
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = keys.get("id", self.name)
        clean, keep_alive = keys.get("clean") != "0", int(keys.get("keep_alive", 0))
        self.ask(Kind.CONNACK, Connect(self.name, clean, keep_alive, properties, will))

    def subscribe(self, words: list[str]) -> None:
        keys, properties = _keys(words[1:], ("qos", "handling"))
        self._qos = int(keys.get("qos", 0))
        options = self._qos | ("no_local" in words) << 2 | ("as_published" in words) << 3
        options |= int(keys.get("handling", 0)) << 4
        one = self._real(words[0]), options
        self.ask(Kind.SUBACK, Subscribe(IDENTIFIER, (one,), properties), IDENTIFIER)

    def unsubscribe(self, words: list[str]) -> None:
        filter = self._real(words[0]).encode()
        body = IDENTIFIER.to_bytes(2) + b"\0" + len(filter).to_bytes(2) + filter
        self.ask(Kind.UNSUBACK, Other(Kind.UNSUBSCRIBE, 2, body), IDENTIFIER)

    def publish(self, words: list[str]) -> None:
        keys, properties = _keys(words[2:], ("qos", "repeat", "size"))
        topic, payload = self._real(words[0]), words[1].encode() * int(keys.get("size", 1))
        qos, retain = int(keys.get("qos", 0)), "retain" in words
        self.retained |= {topic} if retain else set()
        for _ in range(int(keys.get("repeat", 1))):
            self._next += 1
            packet = Publish(topic, payload, qos, self._next, False, retain, properties)
            if qos:
                last = Kind.PUBACK if qos == 1 else Kind.PUBCOMP
                self.ask(last if self._unanswered is None else Kind.PUBREC, packet, self._next)
            else:
                self.send(packet)
                self.ping()

    def ping(self, words: Sequence[str] = ()) -> None:
        """Ask for PINGRESP: then the broker has handled all earlier packets of this client."""
        self.ask(Kind.PINGRESP, Other(Kind.PINGREQ))

    def stay(self) -> None:
        """Send PINGREQ if it is time: the broker may demand a Keep Alive."""
        if time.monotonic() > self._pinged + PING_S:
            self._pinged = time.monotonic()
            self.send(Other(Kind.PINGREQ))

    def disconnect(self, words: list[str]) -> None:
        keys, properties = _keys(words, ("reason",))
        self.send(Disconnect(int(keys.get("reason", 0)), properties))
        self.close()

    def drop(self, words: list[str]) -> None:
        self.close()

    def mute(self, words: list[str]) -> None:
        self._unanswered = []

    def unmute(self, words: list[str]) -> None:
        late, self._unanswered = self._unanswered or [], None
        self.saw.append("unmuted")
        for packet in late:
            self._answer(packet)

    def answered(self) -> bool:
        return not self.awaited

    def ask(self, kind: Kind, packet: Packet, identifier: int = 0) -> None:
        self.awaited.add((kind, identifier))
        self.send(packet)

    def send(self, packet: Packet) -> None:
        if self.socket is not None:
            with suppress(OSError):  # the end of the connection shows when it is read
                self.socket.sendall(write(packet))

    def read(self) -> None:
        """Handle the bytes that have arrived."""
        try:
            data = self.socket.recv(65_536) if self.socket else b""
            for packet in self._cutter.feed(data):
                self._take(packet)
            if not data:
                self._end("closed")
        except (OSError, PacketError) as error:
            self._end(str(error))

    def close(self) -> None:
        self.awaited.clear()
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _end(self, how: str) -> None:
        self.saw.append(how)
        self.close()

    def _take(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._connected(packet)
            case Suback():
                self._answer_came(Kind.SUBACK, IDENTIFIER)
                if packet.reasons != (self._qos,):
                    self.saw.append(f"suback {packet.reasons[0]:#04x}")
            case Publish():
                self._received(packet)
                self._answer(packet)
            case Answer():
                self._answer_came(packet.kind, packet.id)
                if packet.refused:
                    self.awaited.discard((Kind.PUBCOMP, packet.id))
                    self.saw.append(f"{packet.kind.name.lower()} {packet.reason:#04x}")
                self._answer(packet)
            case Disconnect():
                self._end(f"disconnect {packet.reason:#04x}")
            case Other(kind=Kind.UNSUBACK, body=body):
                self._answer_came(Kind.UNSUBACK, IDENTIFIER)
                if body[-1]:
                    self.saw.append(f"unsuback {body[-1]:#04x}")
            case Other():
                self._answer_came(packet.kind, 0)

    def _answer_came(self, kind: Kind, identifier: int) -> None:
        self.awaited.discard((kind, identifier))

    def _connected(self, packet: Connack) -> None:
        self._answer_came(Kind.CONNACK, 0)
        self.name = first(packet.properties, Property.ASSIGNED_CLIENT_IDENTIFIER, self.name)
        words = ["present"] * packet.session_present
        words += [f"{packet.reason:#04x}"] if packet.reason else []
        words += [word for word in _words(packet.properties) if word.split("=")[0] in self._shows]
        if words:
            self.saw.append(" ".join(["connack", *words]))

    def _received(self, packet: Publish) -> None:
        topic = packet.topic
        if alias := first(packet.properties, Property.TOPIC_ALIAS):
            topic = self._aliases[alias] = topic or self._aliases.get(alias, "no topic")
        if alias is not None and not 1 <= alias <= self._most:
            topic += f" alias={alias}"
        payload = packet.payload.decode(errors="replace")
        words = [topic.replace(self._topic, "T", 1)]
        alike = len(set(payload)) == 1 < len(payload)
        words.append(f"{len(payload)}-of-{payload[0]}" if alike else payload)
        words += [f"qos={packet.qos}"] * bool(packet.qos) + ["dup"] * packet.dup
        words += ["retain"] * packet.retain
        self.saw.append(" ".join([*words, *_words(packet.properties)]))

    def _answer(self, packet: Publish | Answer) -> None:
        match packet:
            case Publish(qos=0) | Answer(kind=Kind.PUBACK | Kind.PUBCOMP):
                return
            case Answer(kind=Kind.PUBREC) if packet.refused:
                return
            case Answer(kind=Kind.PUBREL):
                self.send(Answer(Kind.PUBCOMP, packet.id))
            case _ if self._unanswered is not None:
                self._unanswered.append(packet)
            case Publish():
                self.send(Answer(Kind.PUBREC if packet.qos == 2 else Kind.PUBACK, packet.id))
            case Answer():
                self.send(Answer(Kind.PUBREL, packet.id))

    def _real(self, topic: str) -> str:
        """Return a topic or filter of the script as the broker gets it."""
        if topic == "-":
            return ""
        return "/".join(self._topic if level == "T" else level for level in topic.split("/"))


class Script:
    """A script of a record, at a broker. after: whether it is the script at the end of a run."""

    def __init__(self, port: int, record: dict[str, Any], after: bool = False) -> None:
        self._port, self._record = port, record["name"]
        self._script, self._sees = record["script"], record["sees"]
        self._tidies = after or "after" not in record
        if after:
            self._script, self._sees = record["after"], record["after_sees"]
        self._clients: dict[str, Client] = {}

    def run(self) -> dict[str, list[str]]:
        """Carry out the script, and wait for what must be seen. Return what each client saw."""
        for line in filter(None, map(str.strip, self._script.splitlines())):
            name, *words = shlex.split(line)
            if name == "wait":
                self._pump(float(words[0]), lambda: False)
                continue
            client = self._clients.setdefault(name, self._client(name))
            if words[0] == "until":
                self._until({name: int(words[1])})
                continue
            getattr(client, words[0])(words[1:])
            if not self._pump(ANSWER_S, client.answered):
                client.saw.append(f"no answer to {words[0]}")
                client.awaited.clear()
            if words[0] in ("drop", "disconnect"):
                self._pump(AWAY_S, lambda: False)
        self._until(Counter(line.partition(": ")[0] for line in self._sees))
        for client in self._clients.values():
            if client.socket:
                client.ping()
        self._pump(ANSWER_S, lambda: all(one.answered() for one in self._clients.values()))
        self._pump(QUIET_S, lambda: False)
        saw = {name: list(client.saw) for name, client in self._clients.items()}
        if self._tidies:
            self._tidy()
        return saw

    def _until(self, lines: Mapping[str, int]) -> None:
        """Wait for numbers of lines, by client; at most ANSWER_S."""
        self._pump(
            ANSWER_S, lambda: all(len(self._clients[name].saw) >= n for name, n in lines.items())
        )

    def _client(self, name: str) -> Client:
        return Client(self._port, f"walk-{self._record}-{name}", f"walk/{self._record}")

    def _pump(self, within_s: float, done: Callable[[], bool]) -> bool:
        """Read from all clients until `done()`. Return False if this takes too long."""
        until = time.monotonic() + within_s
        while not done():
            open_ = {one.socket: one for one in self._clients.values() if one.socket}
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                return False
            for client in open_.values():
                client.stay()
            for ready in select.select(list(open_), [], [], min(remaining_s, PING_S))[0]:
                open_[ready].read()
        return True

    def _tidy(self) -> None:
        """End all sessions, and delete all retained messages."""
        for client in self._clients.values():
            client.unmute([])
            client.connect([])
            self._pump(ANSWER_S, client.answered)
            for topic in sorted(client.retained):
                client.ask(Kind.PUBACK, Publish(topic, b"", 1, 1, retain=True), 1)
                self._pump(ANSWER_S, client.answered)
            client.disconnect([])


def _keys(
    words: Iterable[str], known: Iterable[str], prefix: str = "-"
) -> tuple[dict[str, str], Properties]:
    """Return the keys of a line that are known or begin with `prefix`, and the properties."""
    keys, properties = {}, []
    for word in words:
        key, is_pair, value = word.partition("=")
        if key in known or key.startswith(prefix):
            keys[key] = value
        elif is_pair:
            properties.append((Property[key.upper()], _value(Property[key.upper()], value)))
    return keys, tuple(properties)


def _value(name: Property, text: str) -> Any:
    if name is Property.USER_PROPERTY:
        return tuple(text.split(":"))
    if name is Property.CORRELATION_DATA:
        return bytes.fromhex(text)
    return int(text) if text.isdecimal() else text


def _words(properties: Properties) -> list[str]:
    """Return properties in words: user properties in their order, after all others by name."""
    words, of_user = [], []
    for name, value in properties:
        if name is Property.USER_PROPERTY:
            of_user.append(f"user_property={':'.join(value)}")
        elif name is not Property.TOPIC_ALIAS:
            text = value.hex() if isinstance(value, bytes) else value
            words.append(f"{name.name.lower()}={text}")
    return sorted(words) + of_user


if __name__ == "__main__":
    app()
