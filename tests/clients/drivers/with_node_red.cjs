// Node-RED: a flow with "mqtt in" or "mqtt out". "complete" and "catch" report the outcome of each
// message.
const fs = require("fs");
const http = require("http");
const os = require("os");
const path = require("path");
const RED = require("node-red");
const of = JSON.parse(process.argv[2]);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "node-red-"));
process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => process.exit(0));
const web = of.way === "ws" || of.way === "wss";
const tls = of.way === "tls" || of.way === "wss";
const scheme = { tcp: "mqtt", tls: "mqtts", ws: "ws", wss: "wss" }[of.way];
const server = http.createServer();
let done = 0, failure;
function ended(error) {
  failure = failure || error;
  done += 1;
  if (done < of.count) return;
  console.log(failure ? `not published: ${failure}` : "published");
  process.exit(0);
}
RED.init(server, {
  userDir: folder, httpAdminRoot: false, httpNodeRoot: false, flowFile: "flows.json",
  logging: { console: { level: process.env.TRACE ? "debug" : "off" } },
  mqttReconnectTime: 500,
  functionGlobalContext: {
    of,
    say: (text) => console.log(text),
    ended,
  },
});
const wires = (...to) => [to];
const flows = [
  { id: "tab", type: "tab", label: "t" },
  { id: "tls", type: "tls-config", name: "", ca: of.ca || "", verifyservercert: true, servername: "" },
  {
    id: "broker", type: "mqtt-broker", name: "", clientid: of.id, autoConnect: true, usetls: tls, tls: "tls",
    broker: web ? `${scheme}://127.0.0.1:${of.port}/mqtt` : "127.0.0.1", port: String(of.port),
    protocolVersion: String(of.version), keepalive: "60", cleansession: false, sessionExpiry: "3600",
    userProps: "", birthTopic: "", willTopic: "", closeTopic: "",
  },
];
if (of.does === "subscribe") {
  flows.push(
    { id: "in", z: "tab", type: "mqtt in", topic: of.topic, qos: String(of.qos), datatype: "utf8",
      broker: "broker", nl: false, rap: true, rh: 0, inputs: 0, wires: wires("hear") },
    { id: "hear", z: "tab", type: "function", func: "global.get('say')(msg.payload);", outputs: 0, wires: [] },
    { id: "status", z: "tab", type: "status", scope: ["in"], wires: wires("ready") },
    { id: "ready", z: "tab", type: "function", outputs: 0, wires: [],
      func: "if (/connected$/.test(msg.status.text) && msg.status.fill === 'green') setTimeout(() => global.get('say')('ready'), 500);" },
  );
} else {
  flows.push(
    // "mqtt out" drops messages without an error until it is connected
    { id: "status", z: "tab", type: "status", scope: ["out"], wires: wires("each") },
    { id: "each", z: "tab", type: "function", outputs: 1, wires: wires("out"),
      func: "if (context.get('sent') || msg.status.fill !== 'green') return; context.set('sent', true);"
        + "const of = global.get('of'); for (let i = 0; i < of.count; i++) node.send({payload: String(i)});" },
    { id: "out", z: "tab", type: "mqtt out", topic: of.topic, qos: String(of.qos), retain: "false",
      broker: "broker", wires: [] },
    { id: "complete", z: "tab", type: "complete", scope: ["out"], wires: wires("good") },
    { id: "good", z: "tab", type: "function", func: "global.get('ended')();", outputs: 0, wires: [] },
    { id: "catch", z: "tab", type: "catch", scope: ["out"], wires: wires("bad") },
    { id: "bad", z: "tab", type: "function", func: "global.get('ended')(msg.error.message);", outputs: 0, wires: [] },
  );
}
for (const one of flows) if (one.z) Object.assign(one, { x: 0, y: 0 }); // Node-RED ignores nodes without coordinates
fs.writeFileSync(path.join(folder, "flows.json"), JSON.stringify(flows));
setTimeout(() => { if (of.does === "publish") { console.log("not published"); process.exit(0); } }, of.within_s * 1000);
server.listen(0, "127.0.0.1", () => RED.start());
