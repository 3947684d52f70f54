// Is everything all right, and if not, what to do?

import { bars, spark } from "./draw.js";
import { fill, h } from "./dom.js";
import { ask, now, since, state } from "./gateway.js";
import { ago, bytes, count, moment, plural, span } from "./words.js";

export const title = () => "Overview";

export function draw(main) {
  fill(main, verdict(), way(), bridges(), facts());
}

/** The state of the gateway in a few words, for every view. */
export function sentence() {
  if (state.lost) return "State unknown";
  const { problems } = state.overview;
  return problems.length === 0 ? "Everything is all right" : `${plural(problems.length, "problem needs", "problems need")} attention`;
}

function verdict() {
  if (state.lost) {
    return h("section", { class: "verdict bad" }, h("h1", { tabindex: "-1" }, h("span", { class: "mark", "aria-hidden": "true" }, "?"), sentence()),
      h("p", { class: "quiet" }, "The gateway does not answer. The figures below are the last that it sent."));
  }
  const found = state.overview.problems;
  const good = found.length === 0;
  return h("section", { class: good ? "verdict" : "verdict bad" },
    h("h1", { tabindex: "-1" }, h("span", { class: "mark", "aria-hidden": "true" }, good ? "✓" : "!"),
      sentence()),
    good
      ? h("p", { class: "quiet" }, "Readings are arriving and being delivered.")
      : h("ul", {}, found.map((one) => h("li", {}, h("span", {}, one.what), h("span", { class: "quiet" }, todo(one.todo))))));
}

/** `Do this: command` with the command as code. */
function todo(text) {
  const [what, command] = text.split(/: (?=sudo |onceway )/);
  return command ? [`${what}: `, h("code", {}, command)] : text;
}

function way() {
  const { boards, spool, uplink, history } = state.overview;
  const station = (name, big, lines, picture) => h("li", {},
    h("h2", {}, name), h("p", { class: "big number" }, big),
    lines.filter(Boolean).map((line) => h("p", { class: "small quiet" }, line)), picture);
  const open = uplink ? uplink.cut - uplink.landed : 0;
  return h("ol", { class: "way", "aria-label": "Path of a reading" },
    station("Boards", `${count(boards.connected)} of ${count(boards.known)}`,
      ["connected", rate(history.came)], spark(history.came)),
    station("Spool", count(spool.waiting),
      [spool.waiting ? `${spool.waiting === 1 ? "message waits" : "messages wait"} for the uplink, the oldest for ${waited(spool)}` : spool.used ? "nothing waits" : "not used without an uplink",
        (spool.used || spool.waiting > 0) && `${bytes(spool.bytes)} of ${bytes(spool.limit)}`],
      spark(history.waiting)),
    station("Batch", uplink ? count(open) : "–",
      uplink ? [open === 1 ? "batch has not landed yet" : "batches have not landed yet", uplink.cut ? `newest batch: number ${count(uplink.cut)}` : "no batch has been cut yet"]
        : ["no uplink is configured"]),
    station("Landed", uplink ? count(uplink.messages) : "–",
      uplink ? [`${uplink.messages === 1 ? "message" : "messages"} in ${plural(uplink.batches, "batch", "batches")}`, uplink.at ? `last batch landed ${ago(uplink.at, now())}` : "no batch has landed yet"] : [],
      uplink && spark(history.landed)));
}

/** Each bridge: both ends' retained messages, and what waits for the other broker. */
function bridges() {
  const rows = state.overview.bridges;
  if (rows.length === 0) return null;
  const cells = (one) => [
    one.waiting ? `${count(one.waiting)}, the oldest for ${span(one.oldest_s || 0)}` : "none",
    one.differ === null ? "unknown" : count(one.differ), `${count(one.retained_here)} here, ${count(one.retained_there)} there`,
    count(one.aside), one.error || "none"];
  return h("section", {}, h("h2", {}, "Bridges"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Bridges" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Bridge", "Messages waiting", "Retained topics that differ", "Retained messages", "Set aside", "Last error"]
      .map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((one) => h("tr", { class: one.bad ? "bad" : "" }, h("th", { scope: "row" }, one.bad ? `! ${one.name}` : one.name),
      cells(one).map((text) => h("td", {}, text))))))));
}

/** How long the oldest message has waited. Without a clock the gateway's time axis (`from`) knows. */
function waited(spool) {
  if (spool.since !== null && now() !== null) return span((now() - spool.since) / 1e6);
  return spool.from === null ? "an unknown time" : span(since(spool.from));
}

function rate(came) {
  const hour = came.slice(-60);
  if (hour.length === 0) return null;
  const sum = hour.reduce((all, one) => all + one, 0);
  return `${plural(sum, "message")} in the last ${span(hour.length * state.overview.sample_s)}`;
}

let tried = "", wrong = false, busy = false;

/** The notification channels, and a button that sends a test. */
function told() {
  const { notify } = state.overview;
  if (!notify || notify.length === 0) {
    return h("p", { class: "quiet" }, "No notifications are sent when a problem begins. Add ", h("code", {}, "[notify]"), " to the configuration.");
  }
  return [h("p", {}, `When a problem begins or ends, a notification is sent by ${notify.join(", ")}. `,
    state.me.operator ? h("button", { type: "button", disabled: busy || state.lost, onclick: tryNotify }, "Send a test") : null),
  h("p", { class: wrong ? "told bad" : "told", role: "status" }, tried)];
}

async function tryNotify() {
  const show = (text, bad = false) => {
    [tried, wrong] = [text, bad];
    const main = document.querySelector("main");
    if (main.querySelector(".verdict")) draw(main);
  };
  busy = true;
  show("Sending the test…");
  try {
    const { ways } = await ask("api/notify-test", {});
    busy = false;
    show(`The test was accepted by ${ways.join(", ")}.`);
  } catch (error) {
    busy = false;
    show(error.message, true);
  }
}

function facts() {
  const { room_days, clock, started, booted, history, sample_s, uplink } = state.overview;
  const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const down = history.down.reduce((sum, one) => sum + one, 0);
  const outages = down === 0 ? "No outage of the uplink" : `The uplink was down for ${span(down * sample_s)}`;
  const label = `${outages} in the last ${span(history.down.length * sample_s)}`;
  return h("section", {}, h("h2", {}, "The gateway"), told(),
    h("dl", { class: "facts" },
      state.overview.spool.used && fact("Spool full, if no batch lands, in", room_days === null ? "not known yet" : room_days > 3650 ? "more than ten years" : `${count(room_days)} days`),
      fact("Clock", clock ? "synchronised" : h("span", { class: "warn" }, "not synchronised")),
      fact("Running since", started === null ? `${span(since(booted))} ago` : moment(started))),
    uplink && history.down.length > 0 && [h("p", { class: "small quiet" }, label), bars(history.down, label)]);
}
