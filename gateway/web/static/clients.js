// Sessions with their queues, retained messages, and refused requests.

import { fill, h } from "./dom.js";
import { ask, state } from "./gateway.js";
import { words } from "./messages.js";
import { bytes, count, plural, span } from "./words.js";

const EVERY_MS = 5000;
let wanted = "", found = null, asked = 0, problem = "", asking = false;

export const title = () => "Clients";

export function draw(main) {
  if (!main.querySelector(".clients")) {
    [found, asked, problem] = [null, 0, ""];
    main.replaceChildren(frame(() => { asked = 0; look(main); }));
  }
  look(main);
  const part = (kind) => main.querySelector(`.${kind}`);
  fill(part("problem"), problem);
  if (!found) return;
  const { sessions, retained, refusals } = found;
  fill(part("found"), `${plural(sessions.count, "session")}, ${count(sessions.connected)} connected; `
    + `${sessions.fit > sessions.shown.length ? `the first ${sessions.shown.length} of ${count(sessions.fit)}` : count(sessions.fit)} shown`);
  fill(part("sessions"), sessions.shown.map((one) => line(main, one)));
  fill(part("kept"), `${plural(retained.count, "message")}, ${bytes(retained.bytes)}; ${count(retained.shown.length)} shown`);
  fill(part("retained"), retained.shown.map((one) => kept(main, one)));
  fill(part("refusals"), refusals.length === 0
    ? h("p", { class: "quiet" }, "No request was refused since the start.")
    : h("ul", {}, refusals.map((one) => h("li", {}, `${one.request}: ${one.reason.replaceAll("_", " ")}, ${plural(one.count, "time")}`))));
}

async function look(main) {
  if (asking || performance.now() - asked < EVERY_MS && asked) return;
  asking = true;
  asked = performance.now();
  const text = wanted;
  try {
    found = await ask(`api/clients?wanted=${encodeURIComponent(text)}`);
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  asking = false;
  if (text !== wanted) asked = 0;
  if (main.querySelector(".clients")) draw(main);
}

function frame(again) {
  const head = (...names) => h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
  return h("div", { class: "clients" },
    h("h1", { tabindex: "-1" }, "Clients"),
    h("form", { class: "row", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "client" }, "Find a client, address, user or topic"),
        h("input", { id: "client", type: "search", autocomplete: "off", value: wanted, maxlength: 256, oninput: (event) => { wanted = event.target.value.trim(); again(); } }))),
    h("p", { class: "told bad problem", role: "alert" }),
    h("section", { "aria-labelledby": "h-sessions" }, h("h2", { id: "h-sessions" }, "Sessions"), h("p", { class: "found small quiet" }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "h-sessions" },
        h("table", {}, head("Client", "From", "User", "Queued", "In flight", "Subscriptions", "Offline for", h("span", { class: "unseen" }, "Do")), h("tbody", { class: "sessions" })))),
    h("section", { "aria-labelledby": "h-retained" }, h("h2", { id: "h-retained" }, "Retained messages"), h("p", { class: "kept small quiet" }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "h-retained" },
        h("table", {}, head("Topic", "Message", "QoS", "Size", h("span", { class: "unseen" }, "Do")), h("tbody", { class: "retained" })))),
    h("section", { "aria-labelledby": "h-refusals" }, h("h2", { id: "h-refusals" }, "Refused"), h("div", { class: "refusals" })));
}

/** Ask the gateway for a change, and look again. */
async function change(main, sure, ...request) {
  if (!confirm(sure)) return;
  try {
    await ask(...request);
  } catch (error) {
    problem = error.message;
  }
  asked = 0;
  look(main);
}

function kept(main, one) {
  const clear = () => change(main, `Clear the retained message of ${one.topic}?`,
    "api/publish", { topic: one.topic, payload: "", qos: 1, retain: true });
  return h("tr", {}, h("th", { scope: "row" }, one.topic), h("td", {}, words(one)),
    h("td", { class: "number" }, one.qos), h("td", { class: "number" }, bytes(one.size)),
    h("td", {}, state.me.operator ? h("button", { type: "button", "aria-label": `Clear ${one.topic}`, onclick: clear }, "Clear") : null));
}

function line(main, one) {
  const end = () => change(main, `End the session of ${one.client}? Its queued messages are lost.`, "api/end", { client: one.client });
  return h("tr", {},
    h("th", { scope: "row" }, one.client),
    h("td", {}, one.address === null ? h("span", { class: "quiet" }, "offline") : `${one.address}${one.version ? ` (MQTT ${one.version})` : ""}`),
    h("td", {}, one.user ?? (one.device ? "a board" : "anonymous")),
    h("td", { class: "number" }, one.queued ? `${plural(one.queued, "message")}, ${bytes(one.queued_bytes)}` : "–"),
    h("td", { class: "number" }, count(one.inflight)), h("td", { class: "number" }, count(one.subscriptions)),
    h("td", {}, one.away_s === null ? "–" : span(one.away_s)),
    h("td", {}, state.me.operator ? h("button", { type: "button", "aria-label": `End the session of ${one.client}`, onclick: end }, "End") : null));
}
