// The page: login, choice of the view, and times of drawing.

import * as air from "./air.js";
import * as board from "./board.js";
import * as boards from "./boards.js";
import * as clients from "./clients.js";
import { fill, h } from "./dom.js";
import * as flash from "./flash.js";
import { ask, listen, silence, state } from "./gateway.js";
import * as log from "./log.js";
import * as messages from "./messages.js";
import * as overview from "./overview.js";
import * as site from "./site.js";

const VIEWS = { "": overview, air, boards, board, clients, flash, messages, site, log };
const part = (id) => document.getElementById(id);
let present = null, drawing = false;

function route() {
  const [, name = "", argument = "", more = ""] = location.hash.split("/");
  return { name: name in VIEWS ? name : "", argument: safely(argument), more: safely(more) };
}

function safely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Draw at most once a frame, however much has changed. */
function draw() {
  if (drawing || !state.me || !state.overview) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!state.me) return;
    const { name, argument, more } = route();
    const view = VIEWS[name];
    const moved = present !== location.hash;
    if (moved) {
      if (present !== null) part("main").replaceChildren();
      boards.leave();
      messages.leave();
      flash.leave();
    }
    view.draw(part("main"), argument, more);
    document.title = `${view.title(argument, more)} – ${state.overview.gateway}`;
    fill(part("gateway"), state.overview.gateway);
    fill(part("said"), overview.sentence());
    fill(part("foot"), `Onceway ${state.overview.version}`);
    links(name);
    if (moved) {
      const first = present === null;
      present = location.hash;
      if (!first) part("main").querySelector("h1").focus();
      window.scrollTo(0, 0);
    }
  });
}

function links(name) {
  const link = (href, label, here) => h("a", { href, "aria-current": here ? "page" : null }, label);
  fill(part("nav"), link("#/", "Overview", name === ""), link("#/boards", "Boards", ["boards", "board", "flash"].includes(name)),
    state.overview.radios ? link("#/air", "Air", name === "air") : null,
    state.overview.members ? link("#/site", "Site", name === "site") : null,
    link("#/clients", "Clients", name === "clients"),
    link("#/messages", "Messages", name === "messages"),
    link("#/log", "Log", name === "log"));
}

function lost(is) {
  const changed = state.lost !== is;
  state.lost = is;
  if (changed) draw();
  part("lost").hidden = !is;
  fill(part("lost"), is ? "The gateway does not answer. What you see may be old; trying again." : "");
}

function enter(me) {
  state.me = me;
  present = null;
  part("main").replaceChildren(h("p", { class: "quiet" }, "…"));
  part("nav").hidden = part("who").hidden = false;
  fill(part("who"), h("span", {}, me.user, me.operator ? "" : " (may only look)"),
    h("button", { class: "plain", type: "button", onclick: leave }, "Log out"));
  listen({ changed: () => { if (present === null) part("main").replaceChildren(); draw(); }, lost, out: login });
}

async function leave() {
  await ask("api/logout", {}).catch(() => {});
  login();
}

function login() {
  silence();
  messages.leave();
  flash.leave();
  lost(false);
  state.me = state.overview = present = null;
  fill(part("said"));
  state.boards.clear();
  part("nav").hidden = part("who").hidden = true;
  document.title = "Log in – Onceway";
  const told = h("p", { class: "told bad", role: "alert" });
  const user = h("input", { id: "user", autocomplete: "username", autocapitalize: "none", required: true });
  const password = h("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { class: "first" }, "Log in");
  const send = async (event) => {
    event.preventDefault();
    button.disabled = true;
    told.textContent = "";
    try {
      enter(await ask("api/login", { user: user.value, password: password.value }));
    } catch (error) {
      told.textContent = error.message;
      password.value = "";
      password.focus();
    }
    button.disabled = false;
  };
  part("main").replaceChildren(h("section", { class: "login" }, h("h1", { tabindex: "-1" }, "Log in"),
    h("form", { onsubmit: send }, h("label", { for: "user" }, "User"), user, h("label", { for: "password" }, "Password"), password, button), told));
  user.focus();
}

window.addEventListener("hashchange", draw);
setInterval(draw, 1000); // ages go on

ask("api/me").then((me) => (me.user === null ? login() : enter(me)), () => {
  lost(true);
  setTimeout(() => location.reload(), 3000);
});
