// with_mqttjs.cjs PORT QOS: publish one message with mqtt.js; print what mqtt.js reports of it.
const mqtt = require("mqtt");
const [port, qos] = process.argv.slice(2).map(Number);
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
  protocolVersion: 5, clientId: "probe", clean: false, reconnectPeriod: 200,
});
client.on("error", () => {});
function end(text) {
  console.log(text);
  process.exit(0);
}
setTimeout(() => end("nothing for 5 s"), 5000);
client.publish("t", "x", { qos }, (error) => end(error ? `not published: ${error.message}` : "published"));
