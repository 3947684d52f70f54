// The radios: each with its remaining airtime, and how well each board is received.

import { fill, h } from "./dom.js";
import { ask } from "./gateway.js";
import { count, span } from "./words.js";

const EVERY_MS = 3000;
const COLUMNS = ["Board", "State", "Heard", "Signal", "Airtime in the last hour"];
let found = null, asked = 0, problem = "", asking = false;

export const title = () => "Air";

export function draw(main) {
  if (!main.querySelector(".air")) {
    [found, asked, problem] = [null, 0, ""];
    main.replaceChildren(h("div", { class: "air" }, h("h1", { tabindex: "-1" }, "Air"),
      h("p", { class: "told bad problem", role: "alert" }), h("div", { class: "radios" }, h("p", { class: "quiet" }, "…"))));
  }
  look(main);
  fill(main.querySelector(".problem"), problem);
  if (!found) return;
  fill(main.querySelector(".radios"), found.length === 0
    ? h("p", { class: "quiet" }, "No radio is configured: a ", h("code", {}, "[[lora]]"), " section in gateway.toml names one.")
    : found.map(radio));
}

async function look(main) {
  if (asking || performance.now() - asked < EVERY_MS && asked) return;
  asking = true;
  asked = performance.now();
  try {
    found = await ask("api/air");
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  asking = false;
  if (main.querySelector(".air")) draw(main);
}

/** Seconds of airtime. */
export const seconds = (value) => `${count(value)} s`;

/** How well a board was heard: dBm tell the strength, dB what stands above the noise. */
export const heard = ({ rssi, snr }) => rssi === null ? "–" : `${count(rssi)} dBm, SNR ${count(snr)} dB`;

function radio(one, index) {
  const id = `h-radio-${index}`;
  const share = one.used / one.limit;
  const fact = (label, ...value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
  const budget = `${seconds(one.used)} of ${seconds(one.limit)} sent in the last hour: ${count(100 * share)} %`;
  const frames = Object.entries(one.counts).map(([what, number]) => `${count(number)} ${what.replaceAll("_", " ")}`);
  return h("section", { "aria-labelledby": id }, h("h2", { id }, one.port),
    h("p", { class: one.open ? "quiet" : "warn" }, one.problem ?? (one.told || "The modem has not answered yet.")),
    h("dl", { class: "facts" },
      fact("Channel", `${(one.frequency / 1e6).toFixed(3)} MHz, SF${one.factor}`),
      fact("Network", one.network), fact("Law", one.rule), fact("Frames", frames.length ? frames.join(", ") : "none")),
    h("p", { class: share > 0.9 ? "small warn" : "small quiet" }, budget),
    h("progress", { max: one.limit, value: Math.min(one.used, one.limit), "aria-label": budget }),
    one.boards.length === 0
      ? h("p", { class: "quiet" }, "No board is registered for this radio: ", h("code", {}, "sudo onceway device add NAME --board uno-lora"), ".")
      : h("table", { class: "boards" },
        h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, one.boards.map((board) => line(board, one.limit)))));
}

function line(board, limit) {
  const cells = [
    board.connected ? "in session" : h("span", { class: "warn" }, "no session"),
    board.heard === null ? "not since the start" : `${span(board.heard)} ago`,
    heard(board),
    board.heard === null ? "–" : airtime(board, limit),
  ];
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/board/${encodeURIComponent(board.name)}` }, board.name)),
    cells.map((cell, column) => h("td", { "data-label": COLUMNS[column + 1] }, cell)));
}

/** What the gateway heard of it; the board keeps the law itself. */
export const airtime = ({ airtime: used }, limit) => `${seconds(used)} of ${seconds(limit)} heard`;
