// Live MQTT messages that match a filter, and a form to publish.

import { fill, h } from "./dom.js";
import { ask, state } from "./gateway.js";
import { bytes, moment, plural } from "./words.js";

const MOST = 200;
let wanted = "#", source = null, watching = false, lines = [], came = 0, more = false, problem = "";

export const title = () => "Messages";

export function draw(main) {
  if (!main.querySelector(".messages")) main.replaceChildren(frame(() => draw(main)));
  const part = (kind) => main.querySelector(`.${kind}`);
  fill(part("problem"), problem);
  fill(part("watch"), source ? "Stop" : "Watch");
  fill(part("found"), watching ? `${plural(came, "message")} received${source ? "" : "; stopped"}${more ? ". More messages arrive than are shown: at most 100 a second" : ""}` : source ? "…" : "");
  fill(main.querySelector("tbody"), lines.map((one) => h("tr", {},
    h("td", { class: "small" }, one.time === null ? "–" : moment(one.time)),
    h("th", { scope: "row" }, one.topic, one.retain ? h("span", { class: "small quiet" }, " retained") : null),
    h("td", {}, words(one)),
    h("td", { class: "number" }, bytes(one.size)))));
}

/** Another view is shown. */
export function leave() {
  stop();
  [watching, lines, came, more, problem] = [false, [], 0, false, ""];
}

/** A payload for people. */
export function words({ kind, text }) {
  if (kind === "empty") return h("span", { class: "quiet" }, "empty");
  return kind === "readings" ? text : h("code", {}, text);
}

function stop() {
  if (source) source.close();
  source = null;
}

function watch(redraw) {
  leave();
  const opened = source = new EventSource(`api/messages?filter=${encodeURIComponent(wanted)}`);
  opened.onmessage = (event) => {
    if (opened !== source) return;
    const news = JSON.parse(event.data);
    came += news.messages.length;
    watching = watching || news.watching;
    more = more || news.more;
    lines = [...news.messages.reverse(), ...lines].slice(0, MOST);
    if (news.error) {
      problem = news.error;
      stop();
    }
    redraw();
  };
  opened.onerror = () => {
    if (opened !== source) return;
    problem = "The gateway has ended the live view. Click Watch to start it again.";
    stop();
    redraw();
  };
}

function frame(redraw) {
  const field = h("input", { id: "filter", autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true, maxlength: 256, value: wanted });
  const toggle = (event) => {
    event.preventDefault();
    wanted = field.value.trim();
    if (source) stop();
    else watch(redraw);
    redraw();
  };
  return h("div", { class: "messages" },
    h("h1", { tabindex: "-1" }, "Messages"),
    h("section", { "aria-labelledby": "h-watch" }, h("h2", { id: "h-watch" }, "Live messages"),
      h("form", { class: "row", onsubmit: toggle },
        h("div", {}, h("label", { for: "filter" }, "Topic filter, such as sensors/+/adc0 or #"), field),
        h("button", { class: "first watch" }, "Watch")),
      h("p", { class: "told bad problem", role: "alert" }), h("p", { class: "found small quiet", role: "status" }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "h-watch" },
        h("table", {}, h("thead", {}, h("tr", {}, ["Time", "Topic", "Message", "Size"].map((name) => h("th", { scope: "col" }, name)))), h("tbody")))),
    publishing());
}

function publishing() {
  const may = state.me.operator;
  const told = h("p", { class: "told", role: "status" });
  const topic = h("input", { id: "topic", autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true, maxlength: 256, disabled: !may });
  const payload = h("textarea", { id: "payload", rows: 3, maxlength: 4000, disabled: !may });
  const qos = h("select", { id: "qos", disabled: !may }, h("option", { value: 1 }, "1, at least once"), h("option", { value: 2, selected: true }, "2, exactly once"));
  const retain = h("input", { type: "checkbox", disabled: !may });
  const send = async (event) => {
    event.preventDefault();
    told.className = "told";
    told.textContent = "…";
    try {
      await ask("api/publish", { topic: topic.value, payload: payload.value, qos: Number(qos.value), retain: retain.checked });
      told.textContent = `Published to ${topic.value}: the gateway has it on its disk.`;
    } catch (error) {
      told.className = "told bad";
      told.textContent = error.message;
    }
  };
  return h("section", { "aria-labelledby": "h-publish" }, h("h2", { id: "h-publish" }, "Publish"),
    may ? null : h("p", { class: "quiet" }, "You may only look. To publish, your name must be listed in ", h("code", {}, "operators"), " under ", h("code", {}, "[page]"), "."),
    h("form", { class: "publish", onsubmit: send },
      h("label", { for: "topic" }, "Topic"), topic, h("label", { for: "payload" }, "Message"), payload,
      h("div", { class: "row" }, h("div", {}, h("label", { for: "qos" }, "QoS"), qos),
        h("label", { class: "check" }, retain, "keep it as the topic's retained message"), h("button", { class: "first", disabled: !may }, "Publish"))),
    told);
}
