// mqtt.js. It reconnects by itself, and keeps messages meanwhile.
const fs = require("fs");
const mqtt = require("mqtt");
const of = JSON.parse(process.argv[2]);
const scheme = { tcp: "mqtt", tls: "mqtts", ws: "ws", wss: "wss" }[of.way];
const client = mqtt.connect(`${scheme}://127.0.0.1:${of.port}/mqtt`, {
  protocolVersion: of.version, clientId: of.id, clean: false, reconnectPeriod: 200,
  ca: of.ca ? fs.readFileSync(of.ca) : undefined, servername: of.ca ? "" : undefined,
  properties: of.version === 5 ? { sessionExpiryInterval: 3600 } : undefined,
});
client.on("error", (error) => { if (process.env.TRACE) console.error(error); });
function end(text) {
  console.log(text);
  process.exit(0);
}
if (of.does === "subscribe") {
  client.on("message", (_topic, payload) => console.log(payload.toString()));
  client.subscribe(of.topic, { qos: of.qos }, (error) => { if (!error) console.log("ready"); });
} else {
  setTimeout(() => end("not published"), of.within_s * 1000);
  let left = of.count, failure;
  client.once("connect", () => {
    for (let number = 0; number < of.count; number += 1) {
      client.publish(of.topic, String(number), { qos: of.qos }, (error) => {
        failure = failure || error;
        left -= 1;
        if (!left) end(failure ? `not published: ${failure.message}` : "published");
      });
    }
  });
}
