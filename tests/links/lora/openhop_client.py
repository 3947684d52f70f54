"""The KISS client of openhop_core as a program, in an environment that lacks the project's modules.

In: requests in JSON, one a line: {"do": "encode", "frames": [hex of type byte and content]}, {"do":
"decode", "data": hex, "step": bytes at a time}, {"do": "connect", "port": …, "radio": …}, {"do":
"send", "frame": hex}, {"do": "take"}. Out: the answer to each request, in one line.
"""

import json
import logging
import queue
import sys

from openhop_core.hardware.kiss_modem_wrapper import KissModemWrapper

WAIT_S = 10
heard = queue.Queue()


class Taken(KissModemWrapper):
    """A receiver that stores decoded frames in `found`."""

    def _process_received_frame(self):
        found.append(bytes(self.rx_frame_buffer).hex())


def decode(data, step):
    found.clear()
    taken = Taken("/dev/null", auto_configure=False)
    for at in range(0, len(data), step):
        taken._decode_kiss(data[at : at + step])
    return list(found)


def connect(port, radio):
    client = KissModemWrapper(
        port,
        on_frame_received=lambda data, rssi, snr: heard.put((data.hex(), rssi, snr)),
        radio_config=radio,
        post_open_delay_ms=0,
    )
    return client, client.connect() and client.get_radio_config()


logging.disable(logging.WARNING)
found = []
coder = KissModemWrapper("/dev/null", auto_configure=False)
client = None
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "encode":
        frames = map(bytes.fromhex, asked["frames"])
        answer = [coder._encode_kiss_frame(frame[0], frame[1:]).hex() for frame in frames]
    elif asked["do"] == "decode":
        answer = decode(bytes.fromhex(asked["data"]), asked["step"])
    elif asked["do"] == "connect":
        client, answer = connect(asked["port"], asked["radio"])
    elif asked["do"] == "send":
        answer = client.send_frame_and_wait(bytes.fromhex(asked["frame"]))
    else:
        answer = heard.get(timeout=WAIT_S)
    print(json.dumps(answer), flush=True)
if client is not None:
    client.disconnect()
