"""`with_paho.py PORT QOS`: publish one message with paho; print what paho reports of it."""

import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="probe", protocol=mqtt.MQTTv5)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
message = client.publish("t", b"x", int(sys.argv[2]))
message.wait_for_publish(5)
print("published" if message.is_published() else "not published")
client.disconnect()
