// Requests to the gateway and its event stream. `state` is the newest state received.

export const state = {
  now: null, at: 0, // µs since 1970, and when that was by the browser's own clock
  axis: 0, // µs on the gateway's time axis, which it knows without a clock
  lost: false, // the gateway does not answer
  overview: null,
  boards: new Map(), // rows by name
  names: 0, // another number when a name has come or gone
  me: null,
};

/** µs since 1970 by the gateway's clock; null while that is not known. */
export function now() {
  return state.now === null ? null : state.now + (performance.now() - state.at) * 1000;
}

/** How long ago something was, by the time axis, in seconds. */
export const since = (us) => (state.axis - us) / 1e6 + (performance.now() - state.at) / 1000;

/** Ask; the answer as JSON. Throws an Error with `status` and the gateway's words. */
export async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Onceway": state.me ? state.me.csrf : "" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw Object.assign(new Error("The gateway does not answer."), { status: 0 });
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw Object.assign(new Error(found.error || `The gateway answered with ${response.status}.`), { status: response.status });
  }
  return found;
}

let source = null, again = 0;

/** Listen to the gateway. changed: called after each event; lost: with true while there is no
 * connection; out: when the session has ended. */
export function listen({ changed, lost, out }) {
  silence();
  let fresh = true;
  source = new EventSource("api/events");
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    state.now = news.now;
    state.axis = news.axis;
    state.at = performance.now();
    if (news.all && fresh) {
      state.boards.clear();
      fresh = false;
    }
    if (news.overview) state.overview = news.overview;
    const before = state.boards.size;
    for (const row of news.boards || []) state.boards.set(row.name, row);
    if (state.boards.size !== before || news.all) state.names += 1;
    for (const name of news.gone || []) state.names += state.boards.delete(name);
    lost(false);
    changed(news);
  };
  source.onerror = async () => {
    lost(true);
    silence();
    const me = await ask("api/me").catch(() => state.me);
    if (me === null || me.user === null) {
      out();
      return;
    }
    state.me = me;
    again = setTimeout(() => listen({ changed, lost, out }), 2000);
  };
}

export function silence() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
}
