// All boards: state, latest values, and time since the last reading.

import { fill, h } from "./dom.js";
import { ask, now, since, state } from "./gateway.js";
import { ago, count, moment, plural, span, valued } from "./words.js";

const PART = 100;
const COLUMNS = ["Board", "State", "Last reading", "Heard", "Readings/h", "Retransmitted", "EEPROM", "Firmware"];
const natural = new Intl.Collator("en", { numeric: true });
let wanted = "", troubled = false, shown = PART;

export const title = () => "Boards";

export function draw(main) {
  if (!main.querySelector("table.boards")) {
    main.replaceChildren(frame(() => draw(main)));
  }
  const found = select();
  const many = found.length === 1 ? "1 board" : `${count(found.length)} boards`;
  fill(main.querySelector(".found"), found.length > shown ? `${many}, the first ${count(shown)} are shown` : many);
  rows(main.querySelector("tbody"), found.slice(0, shown));
  main.querySelector(".more").hidden = found.length <= shown;
  fill(main.querySelector(".none"), state.boards.size === 0
    ? ["No board is known yet. Plug one in, and add it here as an operator, or on the gateway: ", h("code", {}, "sudo onceway device add NAME")]
    : found.length === 0 ? ["No board matches."] : []);
}

export function leave() {
  shown = PART;
}

function frame(redraw) {
  const typed = (event) => {
    wanted = event.target.value.trim().toLowerCase();
    shown = PART;
    redraw();
  };
  const ticked = (event) => {
    troubled = event.target.checked;
    redraw();
  };
  return h("div", {},
    h("h1", { tabindex: "-1" }, "Boards"),
    h("form", { class: "row", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "wanted" }, "Find a name, port or state"),
        h("input", { id: "wanted", type: "search", autocomplete: "off", value: wanted, oninput: typed })),
      state.me.operator ? h("a", { class: "button", href: "#/flash/add" }, "Add a board") : null,
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: troubled, onchange: ticked }), "only boards with a problem")),
    h("p", { class: "found small quiet", role: "status" }), h("p", { class: "told bad problem", role: "alert" }),
    h("div", { class: "card list" },
      h("table", { class: "boards" },
        h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))), h("tbody"))),
    h("p", { class: "none" }),
    h("button", { class: "more", type: "button", onclick: () => { shown += PART; redraw(); } }, `Show ${PART} more`));
}

let order = [], names = -1;

/** Rows that are wanted, by name. Sorting ten thousand takes a while: only when there are others. */
function select() {
  if (names !== state.names) {
    names = state.names;
    order = [...state.boards.keys()].sort(natural.compare);
  }
  const found = [];
  for (const name of order) {
    const row = state.boards.get(name);
    if (fits(row) && (!troubled || row.problem || row.state !== "online" || row.outdated)) found.push(row);
  }
  return found;
}

function fits(row) {
  return wanted === "" || `${row.name} ${row.place ?? ""} ${row.state}`.toLowerCase().includes(wanted);
}

function rows(body, found) {
  found.forEach((row, index) => {
    let line = body.children[index];
    if (line === undefined) {
      line = h("tr", {}, COLUMNS.map((name, column) => column === 0 ? h("th", { scope: "row" }) : h("td", { "data-label": name })));
      line.children[1].className = "bare";
      body.append(line);
    }
    cells(row).forEach((cell, column) => fill(line.children[column], cell));
  });
  while (body.children.length > found.length) body.lastChild.remove();
}

function cells(row) {
  return [
    h("a", { href: `#/board/${encodeURIComponent(row.name)}` }, row.name),
    [badge(row.state, row.problem), row.place ? h("span", { class: "small quiet" }, ` ${row.place}`) : null,
      row.state === "pending" && state.me.operator
        ? h("button", { class: "plain", type: "button", "aria-label": `Let ${row.name} in`, onclick: () => letIn(row.name) }, "Let it in") : null],
    row.last ? [`${valued(row.last)} `, h("span", { class: "quiet small" }, row.last.name)] : "–",
    row.seen === null || now() === null ? heard(row) : h("time", { datetime: new Date(row.seen / 1000).toISOString(), title: moment(row.seen) }, ago(row.seen, now())),
    count(row.per_hour),
    row.again === null ? "–" : [plural(row.again, "frame")],
    row.life === null ? "–" : h("span", { class: row.life < 1 ? "warn" : null }, `${plural(row.life, "year")} left`),
    row.firmware ? [h("code", {}, row.firmware.slice(0, 7)), row.outdated ? h("span", { class: "warn" }, " not the newest") : null] : "–",
  ];
}

/** When a board was heard, also while the clock is not synchronised. */
export function heard(row) {
  if (row.heard !== null) return `${span(since(row.heard))} ago`;
  return row.seen === null ? (row.last ? "at an unknown time" : "never") : moment(row.seen);
}

/** change: `admit` or `revoke`. */
export const register = (device, change) => ask("api/registry", { device, change });

async function letIn(device) {
  const problem = document.querySelector(".problem");
  problem.textContent = "";
  await register(device, "admit").catch((error) => { problem.textContent = error.message; });
}

export const badge = (word, title = null) => h("span", { class: `state ${word}`, title }, word);
