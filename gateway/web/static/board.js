// One board: values, state, commands, and the search for a reading.

import { airtime, heard } from "./air.js";
import { badge, heard as heardOf, register } from "./boards.js";
import { holes, plot } from "./draw.js";
import { fill, h } from "./dom.js";
import { ask, now, state } from "./gateway.js";
import { ago, count, moment, plural, span, valued } from "./words.js";

const CAUSES = ["power-on", "brown-out", "reset", "watchdog"];
const EVERY_MS = 2000;
const opened = new Set();
let name = "", found = null, asked = 0, problem = "";
let sent = null; // the last command: the `to` of its answer, the words for "done", and where they go

export const title = (board) => board;

export function draw(main, board) {
  if (name !== board || !main.querySelector(".board")) {
    [name, found, asked, problem] = [board, null, 0, ""];
    main.replaceChildren(frame());
  }
  look(main);
  const row = state.boards.get(name);
  const part = (kind) => main.querySelector(`.${kind}`);
  fill(part("head"), row ? [badge(row.state), row.place ? ` on ${row.place}` : "", row.kind ? `, ${row.kind}` : ""] : problem || "There is no board with this name.");
  part("known").hidden = !row;
  fill(part("trouble"), row?.problem ?? []);
  fill(part("pending"), row && row.state === "pending" && !state.me.operator
    ? ["The board asks to be let in. An operator may let it in here, or on the gateway: ", h("code", {}, `sudo onceway device admit ${name}`)] : []);
  if (!row) return;
  fill(part("membership"), membership(main, row));
  fill(part("facts"), facts(row));
  hear(row);
  for (const hint of main.querySelectorAll(".by-radio")) hint.hidden = !row.radio;
  if (found) {
    fill(part("plots"), plots(found.series));
    fill(part("starts"), starts(found.series));
  }
}

/** Ask for what the list does not have, not too often. */
async function look(main) {
  const row = state.boards.get(name);
  const due = row && (found === null || found.seen !== row.seen || found.row.state !== row.state);
  if (!due || performance.now() - asked < EVERY_MS) return;
  asked = performance.now();
  const board = name;
  try {
    const answer = await ask(`api/board?name=${encodeURIComponent(board)}`);
    if (board !== name) return;
    found = { ...answer, seen: answer.row.seen };
    const field = main.querySelector("#sequence");
    if (field && !field.value && document.activeElement !== field && answer.sequence) field.value = answer.sequence;
    draw(main, board);
  } catch (error) {
    problem = error.message;
  }
}

function frame() {
  return h("div", { class: "board" },
    h("p", { class: "small" }, h("a", { href: "#/boards" }, "← All boards")),
    h("h1", { tabindex: "-1" }, name),
    h("p", { class: "head" }), h("p", { class: "trouble warn", role: "status" }), h("p", { class: "pending warn" }), h("div", { class: "membership" }), h("p", { class: "told changed", role: "status" }),
    h("div", { class: "known" },
      h("section", { "aria-labelledby": "h-values" }, h("h2", { id: "h-values" }, "Last readings"), h("div", { class: "plots" }, h("p", { class: "quiet" }, "…"))),
      h("section", { "aria-labelledby": "h-board" }, h("h2", { id: "h-board" }, "The board"), h("dl", { class: "facts" })),
      h("section", { "aria-labelledby": "h-starts" }, h("h2", { id: "h-starts" }, "Starts"), h("div", { class: "starts" }, h("p", { class: "quiet" }, "…"))),
      commands(), log(), search()));
}

const CHANGES = {
  pending: { change: "admit", label: "Let it in", text: "The board asks to be let in.", done: "The board was let in and may connect." },
  revoked: { change: "admit", label: "Let it in again", text: "The board was revoked: the gateway does not answer it.", done: "The board may connect again." },
  other: { change: "revoke", label: "Revoke it", text: "", done: "The board was revoked.", sure: (board) => `Revoke ${board}? Its connection ends, and readings that are not sent yet stay in the board.` },
};

/** Whether it belongs to this gateway, and the button that changes that. */
function membership(main, row) {
  const wanted = CHANGES[row.state] ?? (row.registered ? CHANGES.other : null);
  if (!wanted || !state.me.operator) return [];
  const write = (deed, label) => h("a", { class: "button", href: `#/flash/${deed}/${encodeURIComponent(row.name)}` }, label);
  const board = row.name;
  const change = async () => {
    if (wanted.sure && !confirm(wanted.sure(board))) return;
    const told = main.querySelector(".changed");
    told.className = "told changed";
    told.textContent = "…";
    try {
      await register(board, wanted.change);
      if (board !== name) return;
      told.textContent = wanted.done;
      main.querySelector("h1").focus(); // the button goes
    } catch (error) {
      told.className = "told changed bad";
      told.textContent = error.message;
    }
  };
  return [h("p", {}, wanted.text && h("span", { class: "warn" }, wanted.text, " "), h("button", { type: "button", onclick: change }, wanted.label),
    row.registered ? [" ", write("update", "Update its firmware"), " ", write("replace", "Replace it")] : null)];
}

function plots(series) {
  const measured = series.filter((one) => !one.status);
  if (measured.length === 0) return [h("p", { class: "quiet" }, "No reading has arrived yet.")];
  return measured.map((one) => {
    const points = one.points;
    const head = h("figcaption", {}, h("strong", {}, one.name), h("span", {}, `${valued(one)}, ${ago(one.time, now())}`));
    if (points.length < 2) return h("figure", { class: "plot" }, head);
    const values = points.map(([, value]) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const gaps = holes(points.map(([time]) => time));
    const label = `${one.name}: ${plural(points.length, "reading")} in ${span((points[points.length - 1][0] - points[0][0]) / 1e6)}, `
      + `from ${valued({ value: low, unit: one.unit })} to ${valued({ value: high, unit: one.unit })}`
      + (gaps.length ? `, ${plural(gaps.length, "gap")}` : "");
    return h("figure", { class: "plot" }, head, plot(points, one.unit, label),
      h("p", { class: "small quiet" }, label),
      h("details", {
        open: opened.has(one.name),
        ontoggle: (event) => (event.target.open ? opened.add(one.name) : opened.delete(one.name)),
      }, h("summary", {}, "As a table"), table(one)));
  });
}

function table(one) {
  const lines = one.points.slice(-20).reverse();
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Value"))),
    h("tbody", {}, lines.map(([time, value]) => h("tr", {}, h("td", {}, moment(time)), h("td", { class: "number" }, valued({ value, unit: one.unit })))))));
}

function facts(row) {
  const said = found ? found.series.filter((one) => one.status) : [];
  const told = Object.fromEntries(said.map((one) => [one.name, one.value]));
  const fact = (label, value) => value === null || value === undefined ? null : h("div", {}, h("dt", {}, label), h("dd", {}, value));
  const gaps = found ? Math.max(0, ...found.series.map((one) => holes(one.points.map(([time]) => time)).length)) : 0;
  return [
    fact("Heard", row.seen === null || now() === null ? heardOf(row) : `${ago(row.seen, now())} (${moment(row.seen)})`),
    fact("Readings in the last hour", count(row.per_hour)),
    fact("Newest reading", found && found.sequence ? `number ${found.sequence}` : null),
    fact("Gaps in the plot", count(gaps)),
    fact("Retransmitted frames", row.again === null ? null : count(row.again)),
    fact("Damaged frames", row.bad === null ? null : count(row.bad)),
    fact("By radio", found && found.radio && heard(found.radio)),
    fact("Airtime of an hour", found && found.radio && airtime(found.radio, found.radio.limit)),
    fact("Starts", told.boot === undefined ? null : `${count(told.boot)}, the last one by ${CAUSES[told.cause] ?? "an unknown cause"}`),
    fact("EEPROM", row.life === null ? null : `${plural(row.life, "year")} left${told.worn ? `, ${plural(told.worn, "worn cell")}` : ""}`),
    fact("Answer to the last command", row.answer && row.answer.words),
    fact("Refused for good", told.aside ? plural(told.aside, "reading") : null),
    fact("Firmware", row.firmware && [h("code", {}, row.firmware), row.outdated ? h("span", { class: "warn" }, " not the newest") : null]),
  ];
}

/** As it has told them since the gateway runs, the newest first. */
function starts(series) {
  const points = (name) => series.find((one) => one.status && one.name === name)?.points ?? [];
  const causes = new Map(points("cause"));
  const first = new Map();
  for (const [time, number] of points("boot")) if (!first.has(number)) first.set(number, time);
  if (first.size === 0) return [h("p", { class: "quiet" }, "The board has not reported a start yet.")];
  const lines = [...first].slice(-20).reverse();
  return [h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Start", "Reported", "Cause"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, lines.map(([number, time]) => h("tr", {},
      h("td", { class: "number" }, count(number)), h("td", {}, moment(time)), h("td", {}, CAUSES[causes.get(time)] ?? "unknown"))))))];
}

/** What it keeps in its memory, and tells when it is asked. */
function log() {
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const read = async () => {
    fill(answer, h("p", { class: "quiet" }, "…"));
    try {
      fill(answer, said(await ask("api/board-log", { device: name })));
    } catch (error) {
      fill(answer, h("p", { class: "told bad" }, error.message));
    }
  };
  return h("section", { "aria-labelledby": "h-log" }, h("h2", { id: "h-log" }, "Log of the board"),
    h("p", { class: "by-radio", hidden: true }, "A board on a radio is slow to answer. This command waits for the answer: ", h("code", {}, `sudo onceway device log ${name}`)),
    h("button", { type: "button", disabled: !state.me.operator, onclick: read }, "Read the log"), answer);
}

function said(rows) {
  const lost = rows.find((row) => row.lost)?.lost;
  const lines = rows.filter((row) => row.text !== undefined);
  return [lost && h("p", { class: "small quiet" }, `${plural(lost, "earlier line")} ${lost === 1 ? "was" : "were"} overwritten.`),
    lines.length === 0 ? h("p", { class: "quiet" }, "The log is empty.") : h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Time", "Message"].map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, lines.map((row) => h("tr", {},
        h("td", { class: "small" }, row.utc === null ? `${span(row.uptime)} after a start` : moment(row.utc * 1e6)), h("td", {}, row.text))))))];
}

function commands() {
  const told = h("p", { class: "told", role: "status" });
  const send = async (command, done) => {
    told.className = "told";
    told.textContent = "…";
    try {
      const { to } = await ask("api/command", { device: name, command });
      told.textContent = state.boards.get(name)?.radio
        ? "The gateway has stored the command. The board carries it out the next time it sends; its answer then appears here."
        : "The command is sent. The board's answer appears here.";
      sent = { to, done, told };
      hear(state.boards.get(name));
    } catch (error) {
      told.className = "told bad";
      told.textContent = error.message;
    }
  };
  const may = state.me.operator;
  const button = (command, label, done, sure) => h("button", {
    type: "button", disabled: !may,
    onclick: () => { if (!sure || confirm(sure)) send(command, done); },
  }, label);
  const number = h("input", { id: "interval", type: "number", min: 1, max: 65535, required: true, disabled: !may, inputmode: "numeric" });
  const unit = h("select", { id: "unit", "aria-label": "Unit of the interval", disabled: !may }, h("option", { value: "s" }, "seconds"), h("option", { value: "min" }, "minutes"));
  return h("section", { "aria-labelledby": "h-commands" }, h("h2", { id: "h-commands" }, "Commands"),
    may ? null : h("p", { class: "quiet" }, "You may only look. To send commands, your name must be listed in ", h("code", {}, "operators"), " under ", h("code", {}, "[page]"), "."),
    h("p", { class: "by-radio", hidden: true }, "This board is on a radio and listens only after it has sent. A command waits at the gateway until then."),
    h("div", { class: "actions" },
      button("identify", "Blink its LED", "Its LED blinks for ten seconds."),
      button("reboot", "Restart it", "The board restarts as soon as nothing waits for an acknowledgement.", `Restart ${name}?`),
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); send(`interval ${number.value} ${unit.value}`, `The board now measures every ${number.value} ${unit.value}.`); } },
        h("div", {}, h("label", { for: "interval" }, "Measure every"), number), unit, h("button", { disabled: !may }, "Set"))),
    told);
}

/** The board's answer to the command that was sent last from here. */
function hear(row) {
  if (!sent || row?.answer?.to !== sent.to) return;
  const { kind, words } = row.answer;
  sent.told.className = kind === "refused" ? "told bad" : "told";
  sent.told.textContent = kind === "done" ? `The board has answered. ${sent.done}` : `The board has answered: ${words}.`;
  sent = null;
}

function search() {
  const field = h("input", { id: "sequence", type: "number", min: 0, required: true, inputmode: "numeric" });
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const find = async (event) => {
    event.preventDefault();
    fill(answer, h("p", { class: "quiet" }, "…"));
    try {
      const sequence = field.value;
      fill(answer, path(sequence, await ask(`api/where?device=${encodeURIComponent(name)}&sequence=${sequence}`)));
    } catch (error) {
      fill(answer, h("p", { class: "told bad" }, error.message));
    }
  };
  return h("section", { "aria-labelledby": "h-where" }, h("h2", { id: "h-where" }, "Where is reading …?"),
    h("form", { class: "row", onsubmit: find }, h("div", {}, h("label", { for: "sequence" }, "Sequence number"), field), h("button", { class: "first" }, "Find it")), answer);
}

const STATIONS = ["board", "spool", "batch", "landed"];

/** The way of one reading, with the place where it is. */
function path(sequence, { places, unknown, doubts, error }) {
  if (error) return [h("p", { class: "told bad" }, error)];
  if (places.length === 0) return [h("p", { class: "told" }, `${unknown}.`)];
  return [...places.map((place) => {
    const at = STATIONS.indexOf(place.place);
    const words = {
      board: "sent",
      spool: at === 1 ? "waits, not in a batch yet" : "done",
      batch: place.batch ? `number ${place.batch}${at === 2 ? ", not landed yet" : ""}` : "not yet",
      landed: at === 3 ? `${moment(place.since)}` : "not yet",
    };
    return [
      h("p", {}, `Reading ${sequence} of ${name} `, h("strong", {}, ["is in the board", "waits in the spool", "is in a batch", "has landed"][at]), "."),
      h("ol", { class: "way" }, STATIONS.map((station, index) => h("li", { class: index < at ? "passed" : index === at ? "here" : "ahead", "aria-current": index === at ? "step" : null },
        h("h2", {}, station[0].toUpperCase() + station.slice(1)), h("p", { class: "small" }, words[station])))),
      place.file ? h("p", { class: "small quiet" }, "File: ", h("code", {}, `${place.landing ?? ""}/${place.file}`)) : null,
      h("p", { class: "small quiet" }, "Only the centre knows whether the reading is in the table: ", h("code", {}, `onceway where ${name} ${sequence} --table TABLE`)),
    ];
  }), ...doubts.map(({ at, silent }) => h("p", { class: "small warn" }, `${name} got a suspect session ${at === null ? "at an unknown time" : `on ${moment(at)}`}: `
    + `${silent.length ? `${silent.join(", ")} did not answer` : "a store had been restored, or two gateways claimed to have the newest session, as after two changes of gateway within 0.3 s"}. Publications that ${name} had sent before may have arrived here again; the table keeps one of each.`))];
}
