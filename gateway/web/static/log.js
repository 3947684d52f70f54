// The gateway's last log lines, with a filter.

import { fill, h } from "./dom.js";
import { ask, state } from "./gateway.js";
import { moment } from "./words.js";

const EVERY_MS = 2000;
const MOST = 1000;
let wanted = "", level = "info", lines = [], last = 0, asked = 0, asking = false, problem = "";

export const title = () => "Log";

export function draw(main) {
  if (!main.querySelector(".log")) {
    again();
    main.replaceChildren(frame(() => { again(); look(main); }));
  }
  if (!state.me.operator) return;
  look(main);
  fill(main.querySelector(".problem"), problem);
  fill(main.querySelector("tbody"), lines.slice().reverse().map((line) => h("tr", { class: line.level },
    h("td", { class: "small" }, moment(line.time)), h("td", { class: "small" }, line.level), h("td", {}, line.text))));
  fill(main.querySelector(".none"), lines.length === 0 && last > 0 ? "No line matches." : "");
}

function again() {
  [lines, last, asked, problem] = [[], 0, 0, ""];
}

async function look(main) {
  if (asking || (asked && performance.now() - asked < EVERY_MS)) return;
  asking = true;
  asked = performance.now();
  const filter = `wanted=${encodeURIComponent(wanted)}&level=${level}`;
  try {
    const found = await ask(`api/log?after=${last}&${filter}`);
    if (filter === `wanted=${encodeURIComponent(wanted)}&level=${level}`) {
      lines = [...lines, ...found.lines].slice(-MOST);
      last = found.last;
    } else {
      again();
    }
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  asking = false;
  if (main.querySelector(".log")) draw(main);
}

function frame(changed) {
  const heading = h("h1", { tabindex: "-1" }, "Log");
  if (!state.me.operator) {
    return h("div", { class: "log" }, heading, h("p", {}, "Only operators see the log. Their names are listed in ", h("code", {}, "operators"), " under ", h("code", {}, "[page]"), "."));
  }
  const levels = [["info", "all"], ["warning", "warnings and errors"], ["error", "errors"]];
  return h("div", { class: "log" }, heading,
    h("form", { class: "row", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "line" }, "Find a text"),
        h("input", { id: "line", type: "search", autocomplete: "off", value: wanted, maxlength: 256, oninput: (event) => { wanted = event.target.value.trim(); changed(); } })),
      h("div", {}, h("label", { for: "level" }, "Show"),
        h("select", { id: "level", onchange: (event) => { level = event.target.value; changed(); } },
          levels.map(([value, words]) => h("option", { value, selected: value === level }, words))))),
    h("p", { class: "small quiet" }, "The last lines since the start, newest first. The whole log: ", h("code", {}, "journalctl -u onceway-gateway")),
    h("p", { class: "told bad problem", role: "alert" }),
    h("div", { class: "card scroll", tabindex: "0", role: "group", "aria-label": "Log lines" },
      h("table", {}, h("thead", {}, h("tr", {}, ["Time", "Level", "Message"].map((name) => h("th", { scope: "col" }, name)))), h("tbody"))),
    h("p", { class: "none" }));
}
