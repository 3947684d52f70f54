// The site: its members with their sessions and moves, and what to do if a member is silent.

import { fill, h } from "./dom.js";
import { ask } from "./gateway.js";
import { count, plural, span } from "./words.js";

const EVERY_MS = 3000;
const APART_S = 60; // seconds between two clocks from which on a warning is shown
const SILENT = "it is silent"; // the gateway's text for a member that does not answer
const COLUMNS = ["Member", "State", "Heard", "Answers in", "Sessions", "Moving", "Suspect", "Was silent"];
let found = null, asked = 0, problem = "", asking = false;

export const title = () => "Site";

export function draw(main) {
  if (!main.querySelector(".site")) {
    [found, asked, problem] = [null, 0, ""];
    main.replaceChildren(h("div", { class: "site" }, h("h1", { tabindex: "-1" }, "Site"),
      h("p", { class: "told bad problem", role: "alert" }), h("div", { class: "members" }, h("p", { class: "quiet" }, "…"))));
  }
  look(main);
  fill(main.querySelector(".problem"), problem);
  if (found) fill(main.querySelector(".members"), verdict(found), members(found), moves(found.members[0].figures), removed(found.removed));
}

async function look(main) {
  if (asking || performance.now() - asked < EVERY_MS && asked) return;
  asking = true;
  try {
    found = await ask("api/site");
    problem = "";
  } catch (error) {
    problem = error.message;
  }
  asked = performance.now();
  asking = false;
  if (main.querySelector(".site")) draw(main);
}

/** What is wrong with a member, and what to do; null where nothing is. */
function trouble(one) {
  if (one.here) return one.problem && [one.problem, "Let it join again: sudo onceway site join FILE"];
  if (!one.connected) {
    return [`${one.name} has been silent for ${span(one.since_s)}${one.problem && one.problem !== SILENT ? `: ${one.problem}` : ""}. `
      + "A client that reconnects waits up to a second for its answer, and may get a suspect session.",
    "See that it runs, and that this machine reaches its address: sudo onceway doctor"];
  }
  if (Math.abs(one.clock_s) >= APART_S) return [`The clock of ${one.name} differs by ${span(Math.abs(one.clock_s))}.`, "Look at timedatectl on both machines"];
  if (one.counts === null) return [`${one.name} is connected, but does not report its sessions.`, "Look at its load, and at its log: journalctl -u onceway-gateway"];
  return null;
}

function verdict({ members: all }) {
  const wrong = all.map(trouble).filter(Boolean);
  return h("section", { class: wrong.length ? "verdict bad" : "verdict", "aria-labelledby": "h-verdict" },
    h("h2", { id: "h-verdict" }, h("span", { class: "mark", "aria-hidden": "true" }, wrong.length ? "!" : "✓"), " ",
      wrong.length ? "A member needs attention" : `All ${all.length} members are in contact`),
    wrong.length ? h("ul", {}, wrong.map(([what, todo]) => h("li", {}, h("span", {}, what), h("span", { class: "quiet" }, todo)))) : null);
}

function members({ members: all }) {
  return h("section", { "aria-labelledby": "h-members" }, h("h2", { id: "h-members" }, "Members and their sessions"),
    h("table", { class: "boards" },
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, all.map(line))));
}

function line(one) {
  const counts = one.counts;
  const cells = [
    one.here ? "this gateway" : one.connected ? `in contact for ${span(one.since_s)}` : h("span", { class: "warn" }, `silent for ${span(one.since_s)}`),
    one.here ? "–" : one.heard_s === null ? "not since the start" : `${span(one.heard_s)} ago`,
    one.here || one.lag_ms === null ? "–" : `${count(one.lag_ms)} ms`,
    counts ? `${count(counts.sessions)}, ${count(counts.connected)} connected` : "not known",
    counts ? count(counts.given) : "–",
    counts ? count(counts.in_doubt) : "–",
    one.here ? "–" : one.silent ? plural(one.silent, "time") : "never",
  ];
  return h("tr", {}, h("th", { scope: "row" }, one.name, h("span", { class: "small quiet address" }, one.address)),
    cells.map((cell, column) => h("td", { "data-label": COLUMNS[column + 1] }, cell)));
}

function moves(figures) {
  const fact = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
  return h("section", { "aria-labelledby": "h-moves" }, h("h2", { id: "h-moves" }, "This gateway since its start"),
    h("dl", { class: "facts" },
      fact("Sessions moved in", count(figures.moved_in)), fact("Sessions moved out", count(figures.moved_out)),
      fact("Packet identifiers released by other members", count(figures.released)),
      fact("A client's session was suspect", figures.marked ? h("span", { class: "warn" }, plural(figures.marked, "time")) : "never")),
    figures.marked ? h("p", { class: "small quiet" }, "A session is suspect if a silent member may hold a newer one. The client may have had to start a new session, and messages "
      + "published again may be in the spool twice. The table keeps one copy of each publication with an identity. The log names each client.") : null);
}

function removed(names) {
  return names.length === 0 ? null : h("section", { "aria-labelledby": "h-removed" }, h("h2", { id: "h-removed" }, "Removed"),
    h("p", {}, names.join(", ")), h("p", { class: "small quiet" }, "Their certificates are no longer accepted. Remove them from [site.members] on all members."));
}
