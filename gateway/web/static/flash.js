// Writing to boards: add a board that is plugged in, update a board, replace a board.

import { fill, h } from "./dom.js";
import { ask, state } from "./gateway.js";

const DEEDS = {
  add: {
    title: () => "Add a board", button: "Write it and add it",
    text: "The gateway writes firmware and a new key to the board, and waits until the board connects.",
  },
  update: {
    title: (name) => `Update ${name}`, button: "Update it",
    text: "The board gets the firmware that is part of this gateway. Readings that are not sent yet are kept. If the board does not connect afterwards, its old firmware is restored.",
  },
  replace: {
    title: (name) => `Replace ${name}`, button: "Write the new board",
    text: "A new board takes over the name, with a new key. Its memory is erased first: readings in it that were not sent are lost.",
  },
};
const STAGES = {
  connect: "Waiting for the boot loader", save: "Saving the present firmware", wipe: "Erasing its memory",
  write: "Writing", verify: "Reading back", greet: "Waiting until it connects",
};
let shown = "", source = null, job, wanted = false, passed = [], problem = "", choices = null;

const deedOf = (word) => (word in DEEDS ? word : "add");
export const title = (deed, name) => DEEDS[deedOf(deed)].title(name);

export function draw(main, argument, name) {
  const deed = deedOf(argument);
  if (shown !== `${deed}/${name}` || !main.querySelector(".flash")) {
    leave();
    shown = `${deed}/${name}`;
    main.replaceChildren(frame(main, deed, name));
    if (state.me.operator) {
      watch(main);
      if (deed !== "update") look(main);
    }
  }
  show(main);
}

/** Another view is shown. */
export function leave() {
  if (source) source.close();
  [shown, source, job, wanted, passed, problem, choices] = ["", null, undefined, false, [], "", null];
}

function frame(main, deed, name) {
  const about = DEEDS[deed];
  return h("div", { class: "flash" },
    h("p", { class: "small" }, h("a", { href: "#/boards" }, "← All boards")),
    h("h1", { tabindex: "-1" }, about.title(name)),
    state.me.operator
      ? h("section", { "aria-label": "What to write" }, h("p", {}, about.text), form(main, deed, name))
      : h("p", { class: "quiet" }, "You may only look. To write to boards, your name must be listed in ", h("code", {}, "operators"), " under ", h("code", {}, "[page]"), "."),
    h("p", { class: "told bad problem", role: "alert" }),
    h("section", { class: "job", "aria-label": "Progress", hidden: true },
      h("p", { class: "now", role: "status" }), h("progress", { max: 1, "aria-label": "This step" }),
      h("ol", { class: "small quiet passed" })));
}

function form(main, deed, name) {
  const device = h("input", { id: "device", autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true, maxlength: 23, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" });
  const kind = h("select", { id: "kind", required: true });
  const port = h("select", { id: "port", required: true, onchange: () => guess(port, kind) });
  const empty = h("input", { type: "checkbox" });
  const send = async (event) => {
    event.preventDefault();
    [problem, wanted, job, passed] = ["", true, null, []];
    show(main);
    try {
      await ask("api/flash", { deed, device: deed === "add" ? device.value.trim() : name, kind: kind.value, port: port.value, empty: empty.checked });
    } catch (error) {
      [problem, wanted] = [error.message, false];
    }
    show(main);
  };
  const field = (id, label, element) => h("div", {}, h("label", { for: id }, label), element);
  return h("form", { class: "row", onsubmit: send },
    deed === "add" ? field("device", "Name", device) : null,
    deed === "update" ? null : [field("port", "Port", port), field("kind", "Kind of board", kind),
      h("button", { class: "plain", type: "button", onclick: () => look(main) }, "Look again")],
    deed === "add" ? h("label", { class: "check" }, empty, "the board had another name before: delete its unsent readings") : null,
    h("button", { class: "first go" }, DEEDS[deed].button));
}

/** Which ports and kinds there are. */
async function look(main) {
  const here = shown;
  const found = await ask("api/ports").catch((error) => { problem = error.message; return null; });
  if (here !== shown) return;
  choices = found;
  if (found) {
    const port = main.querySelector("#port"), kind = main.querySelector("#kind");
    fill(port, found.ports.map((one) => h("option", { value: one.port }, one.port, one.device ? ` (${one.device} is on it)` : one.text ? ` (${one.text})` : "")));
    fill(kind, found.kinds.map((one) => h("option", { value: one.name }, one.title)));
    if (found.ports.length === 0) problem = "No serial port was found. Plug the board in, then look again.";
    guess(port, kind);
  }
  show(main);
}

/** By its USB identity. */
function guess(port, kind) {
  const one = choices && choices.ports.find((entry) => entry.port === port.value);
  if (one && one.boards.length && !one.boards.includes(kind.value)) kind.value = one.boards[0];
}

function watch(main) {
  const opened = source = new EventSource("api/flash");
  opened.onmessage = (event) => {
    if (opened !== source) return;
    const news = JSON.parse(event.data).job;
    if (!job || !news || job.device !== news.device || !job.running) passed = [];
    if (news && news.stage && !passed.includes(news.stage)) passed.push(news.stage);
    // a job that ended before this view was opened is not shown
    if (news && news.running) wanted = true;
    job = news;
    show(main);
  };
}

function show(main) {
  const part = (kind) => main.querySelector(`.${kind}`);
  if (!part("flash")) return;
  const running = wanted && (!job || job.running);
  const button = part("go");
  if (button) button.disabled = running;
  const ended = job && !running && wanted ? job.error : "";
  fill(part("problem"), problem || ended || "");
  part("job").hidden = !wanted;
  if (!wanted) return;
  const bar = main.querySelector("progress");
  bar.hidden = !running;
  bar.value = job ? job.share : 0;
  fill(part("now"), !job ? "…" : running ? `${job.device}: ${STAGES[job.stage] ?? "Beginning"}` : job.error ? `${job.device} was not written.` : `${job.device} is done: ${job.outcome}.`);
  fill(part("passed"), passed.map((stage) => h("li", {}, STAGES[stage] ?? stage)));
}
