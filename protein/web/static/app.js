// The shell around the pages: which page is open, the sweeps it is about, live news, theme, keys.
//
// A page is a module in pages/ with
//   export async function render(root, context) -> nothing, or {update(news), stateChanged(keys)}
// `root` is an empty element of its own. `context` has
//   api         where all data comes from (lib/api.js)
//   state       the address: get, set, link, go (lib/state.js); `state.sweeps` are the chosen sweeps, at least one but at Home
//   selection   the selected trials, which all pages share (lib/selection.js)
//   signal      aborted when the page is left: give it to requests, listeners and timers
//   sweeps      what the store holds: [{name, env, direction, trials, states, ...}], the newest first; filled before the first
//               answer to the page comes, as both are asked for at once
//   keys        bind(keys, help, action, signal) (lib/keys.js)
//   interrupted (sweep, number) -> whether a trial is stored as running, but its process is gone
//   notice      notice(text, {kind, key, seconds, action: {text, run}}) shows a line below the bar; an empty text with the
//               same key takes it away
// Afterwards
//   update({sweeps, numbers}) is called when trials changed: sweep name -> numbers, null where many
//   sweepsChanged() when the list of sweeps may have changed
//   stateChanged(keys) when keys of the address changed; a page without it is rendered anew
//
// Modules import each other by relative paths with names in braces, one import a line, and export declarations.
// The report packs them into one file by these rules (see protein/web/report).

import { address, ServerApi } from "./lib/api.js";
import { fill, h, stateOf } from "./lib/dom.js";
import { sentence } from "./lib/format.js";
import { bind, listen, showHelp } from "./lib/keys.js";
import { sweepPicker } from "./lib/picker.js";
import { Selection } from "./lib/selection.js";
import { State } from "./lib/state.js";
import { followSystem, setTheme, theme } from "./lib/theme.js";

const MOST_SWEEPS = 20; // in one view; protein/web/viewer.py refuses more
const HOME = "home";
const FIRST = "overview"; // where a sweep opens
const ALL = [
  { name: "home", title: "Home", key: "h" },
  { name: "overview", title: "Overview", key: "o" },
  { name: "table", title: "Table", key: "t" },
  { name: "front", title: "Front", key: "f" },
  { name: "curves", title: "Curves", key: "c" },
  { name: "compare", title: "Compare", key: "m" },
  { name: "parameters", title: "Parameters", key: "p" },
  { name: "trial", title: "Trial", key: "r" },
];

const main = document.getElementById("main");
const api = globalThis.proteinApi ?? new ServerApi(); // a report brings its own
const PAGES = ALL.filter((page) => api.live || page.name !== HOME); // a report is about its sweeps alone
const state = new State(stateChanged);
const selection = new Selection(state);
const sweeps = []; // pages keep this list, so it is filled anew and never replaced
let listed = null; // the promise of its first answer
let loaded = false; // whether that has come
let view = null; // what the open page's `render` has returned
let opened = ""; // the page and sweeps that are open
let leave = new AbortController();
let unwatch = () => {};
let lost = false;
let epoch = "";

followSystem();
listen();
drawTools();
for (const page of PAGES) bind(`g ${page.key}`, `go to ${page.title}`, () => state.go(page.name));
bind("?", "show these keys", showHelp);
bind("d", "dark or light", () => setTheme(theme() === "dark" ? "light" : "dark"));
bind("w", "choose sweeps", () => picker.open());
const picker = sweepPicker(document.getElementById("picker"), {
  chosen: () => state.sweeps, choose: chooseSweeps,
});

/** Shows other sweeps, without what the address says of the earlier ones alone: a column, a metric, a trial. */
function chooseSweeps(names) {
  if (state.page === "trial" && state.path.length && !names.includes(state.path[0])) return state.go(FIRST, { sweep: names, sel: "" });
  const gone = state.sweeps.every((name) => names.includes(name)) ? {} : { metric: "", at: "", of: "", zoom: "" };
  for (const key of ["sort", "group"]) if (gone.metric === "" && /(params|metrics|timings)\./.test(state.get(key))) gone[key] = "";
  // The sides of a comparison have their labels by position, so they are of these very sweeps.
  return state.set({ sweep: names, sel: "", side: [], reference: "", ...gone }, { replace: false });
}

/** Opens the page that the address names while the list of sweeps is on its way: over a slow line, both take one answer. */
async function start() {
  fill(main, stateOf("loading", "Loading the sweeps"));
  listed = loadSweeps();
  if (api.live && !state.page && !state.sweeps.length) ahead.set(...asked("/home", { sort: "-created_at" })); // it opens at Home, most likely
  stateChanged([], state);
  try {
    await listed;
  } catch (error) {
    leave.abort();
    opened = "";
    fill(main, failed(error, start));
    if (error.status === 0 || error.status === 503) setTimeout(() => { if (!loaded) start(); }, 2000);
    return;
  }
  loaded = true;
  stateChanged([], state);
}

const ahead = new Map(); // address -> an answer that was asked for before the page was known

function asked(path, params) {
  const answer = api.get(path, params);
  answer.catch(() => {}); // it is awaited where it is used
  return [address(path, params), answer];
}

/** The same data, but no answer before the list of sweeps is there, nor a refusal: the address may name a sweep that is not. */
const pageApi = {
  live: api.live, about: api.about, post: (...given) => api.post(...given), url: (...given) => api.url(...given),
  async get(path, params, more) {
    const early = ahead.get(address(path, params));
    ahead.clear();
    const answer = early ?? api.get(path, params, more);
    answer.catch(() => {}); // it is awaited below
    await listed;
    return answer;
  },
};

async function loadSweeps() {
  const found = await api.get("/sweeps");
  sweeps.splice(0, sweeps.length, ...found.sweeps);
  picker.draw(sweeps, found.store);
  tellInterrupted();
}

function interrupted(name, number) {
  return Boolean(sweeps.find((one) => one.name === name)?.interrupted?.includes(number));
}

let told = ""; // which trials the reader knows to be interrupted; a line that was closed stays closed

/** Says which trials of the chosen sweeps are stored as running, but have no process any more. */
function tellInterrupted() {
  const lines = sweeps.filter((one) => state.sweeps.includes(one.name) && one.interrupted?.length).map(({ name, interrupted: numbers }) => {
    const some = numbers.slice(0, 5).join(", ") + (numbers.length > 5 ? " and others" : "");
    return numbers.length === 1 ? `Trial ${some} of ${name} was interrupted: its process is gone.` : `Trials ${some} of ${name} were interrupted: their processes are gone.`;
  });
  const text = lines.length ? `${lines.join(" ")} Start the sweep again to go on.` : "";
  if (text !== told) notice(text, { kind: "warn", key: "interrupted" });
  told = text;
}

// That a process has died changes nothing in the store, so no news tell it.
const LOOK_MS = 30_000;
if (api.live) {
  setInterval(() => {
    if (!document.hidden && !lost && sweeps.some((one) => state.sweeps.includes(one.name) && one.states?.running)) refreshSweeps();
  }, LOOK_MS);
}

/** Opens what the address says, or tells the open page which keys changed. */
async function stateChanged(keys) {
  if (loaded && !sweeps.length) return showNoSweep();
  if (!state.page && (loaded || state.sweeps.length)) state.page = state.sweeps.length || sweeps.length === 1 || !api.live ? FIRST : HOME;
  const atHome = state.page === HOME;
  const [of] = state.page === "trial" ? state.path : [];
  if (of && (!loaded || isKnown(of)) && !state.sweeps.includes(of)) state.set({ sweep: [of] }, { silent: true }); // a trial's address names its sweep
  if (loaded) chooseKnown(atHome);
  else if (state.sweeps.length > MOST_SWEEPS || (!state.sweeps.length && !atHome)) return undefined; // which ones is not known yet
  drawPages();
  picker.draw(sweeps);
  tellInterrupted();
  document.title = [atHome ? "" : state.sweeps.join(", "), PAGES.find((page) => page.name === state.page)?.title, "Protein"].filter(Boolean).join(" · ");
  const now = [state.page, ...state.path, ...(atHome ? [] : state.sweeps)].join("\n");
  if (now === opened && !keys.length) return undefined;
  if (now === opened && view?.stateChanged) return quietly(view.stateChanged(keys));
  return open(now);
}

function isKnown(name) {
  return sweeps.some((sweep) => sweep.name === name);
}

/** Leaves out sweeps of the address that the store does not have, and those that are too many. */
function chooseKnown(atHome) {
  const chosen = state.sweeps.filter(isKnown).slice(0, MOST_SWEEPS);
  if (chosen.length === state.sweeps.length && (chosen.length || atHome)) return;
  const unknown = state.sweeps.filter((name) => !isKnown(name));
  if (unknown.length) notice(`The store has no sweep “${unknown[0]}”.`, { kind: "warn", key: "unknown" });
  if (chosen.length === MOST_SWEEPS && state.sweeps.length - unknown.length > MOST_SWEEPS) {
    notice(`At most ${MOST_SWEEPS} sweeps can be looked at together. Take one away to add another.`, { kind: "warn", key: "many", seconds: 8 });
  }
  state.set({ sweep: chosen.length || atHome ? chosen : [sweeps[0].name] }, { silent: true });
}

async function open(now) {
  opened = now;
  view = null;
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const page = PAGES.find((one) => one.name === state.page);
  const root = h("div", { class: `page page-${state.page}` });
  if (!page) {
    fill(main, stateOf("error", `There is no page “${state.page}”.`, h("a", { href: state.link(FIRST), text: "Go to the overview" })));
    return;
  }
  const waiting = h("div", { class: "waiting" }, h("h1", { text: page.name === HOME ? "Sweeps" : `${page.title} of ${state.path.join(" ") || state.sweeps.join(", ")}` }), stateOf("loading", "Loading"));
  fill(main, h("h1", { class: "visually-hidden", text: waiting.firstChild.textContent }), root, waiting); // it is seen until the first answer comes
  watch();
  try {
    const { render } = await import(`./pages/${page.name}.js`);
    if (signal.aborted) return;
    fill(root);
    const first = async (...given) => {
      const answer = await pageApi.get(...given);
      waiting.remove();
      return answer;
    };
    const made = await render(root, { api: { ...pageApi, get: first }, state, selection, signal, notice, sweeps, interrupted, keys: { bind } });
    if (!signal.aborted) view = made || {};
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (!(error.name === "ApiError" || error.status !== undefined)) console.error(error);
    fill(root, failed(error, () => open(now)));
  } finally {
    waiting.remove();
  }
}

let watching = null; // the sweeps whose news come, as one text

/** Listens for news of the chosen sweeps. */
function watch() {
  const names = state.sweeps;
  if (watching === names.join("\n")) return;
  watching = names.join("\n");
  unwatch();
  unwatch = api.watch(names, {
    changed: (news) => {
      pulse();
      update(Object.fromEntries(news.map((one) => [one.name, one.numbers])));
    },
    sweeps: refreshSweeps,
    trouble: (line) => notice(line && `The store cannot be read: ${line}`, { kind: "warn", key: "trouble" }),
    gone: () => {
      lost = true;
      mark("gone");
      notice("The server does not answer. This page shows what it knew, and tries again every second. "
        + "Start it with protein view.", { kind: "warn", key: "gone" });
    },
    back: (found) => {
      const restarted = epoch && epoch !== found;
      if (lost || restarted) {
        notice("", { key: "gone" });
        refreshSweeps();
        if (view) update(Object.fromEntries(state.sweeps.map((name) => [name, null])));
        else open(opened);
      }
      lost = false;
      epoch = found;
      mark("live");
    },
  });
}

// A browser opens six connections to one server at most, and each page's news hold one. So a page that nobody sees lets
// go of it, and catches up when it is seen again.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => { unwatch(); watching = null; }, 5000);
  } else if (watching === null && opened) {
    watch();
    update(Object.fromEntries(state.sweeps.map((name) => [name, null])));
  }
});

function update(numbers) {
  refreshSoon();
  quietly(view?.update?.({ numbers }));
}

/** Waits for what a page does by itself. Where the server or the store is away, another message says so already. */
async function quietly(work) {
  try {
    await work;
  } catch (error) {
    if (error.name !== "AbortError" && error.status === undefined) console.error(error);
  }
}

let refreshing = 0;
function refreshSoon() {
  if (!refreshing) refreshing = setTimeout(() => { refreshing = 0; refreshSweeps(); }, 3000);
}

async function refreshSweeps() {
  try {
    const none = !sweeps.length;
    await loadSweeps();
    if (none && sweeps.length) stateChanged([], state);
    quietly(view?.sweepsChanged?.());
    const [gone] = state.page === HOME ? [] : state.sweeps.filter((name) => !isKnown(name));
    notice(gone && `The store does not hold “${gone}” any more: it was removed or renamed. This page shows what it knew.`, { kind: "warn", key: "removed",
      action: { text: "All sweeps", run: () => state.go(HOME, { sweep: state.sweeps.filter(isKnown), sel: "", filter: "" }) } });
  } catch (error) {
    if (error.status === undefined) throw error; // the stream tells that the server is gone
  }
}

function showNoSweep() {
  opened = "none";
  view = {};
  watch();
  fill(main, stateOf("empty", "This store holds no sweep yet.",
    h("p", { class: "state-help" }, "Start one: ", h("code", { text: "protein sweep --env pong --max-cost 10m" })),
    "It appears here by itself."));
}

function failed(error, again) {
  const known = error.status !== undefined;
  return stateOf("error", known ? sentence(error.message) : "This page has a defect.",
    known ? null : h("p", { class: "state-help" }, h("code", { text: `${error.name}: ${error.message}` })),
    h("button", { type: "button", class: "button", text: "Try again", onclick: again }));
}

const notices = new Map();

/** Shows a line: below the bar, or at the bottom where it only informs. A line with the key of an earlier one replaces it; an empty one takes it away. */
function notice(text, { kind = "info", key = text, seconds = 0, action = null } = {}) {
  notices.get(key)?.remove();
  notices.delete(key);
  if (!text) return;
  const line = h("div", { class: `notice ${kind}` }, h("span", { text }),
    action && h("button", { type: "button", class: "button", text: action.text, onclick: () => { notice("", { key }); action.run(); } }),
    h("button", { type: "button", class: "close", "aria-label": "Close this message", text: "×", onclick: () => notice("", { key }) }));
  notices.set(key, line);
  document.getElementById(kind === "info" ? "toasts" : "notices").append(line);
  if (seconds) setTimeout(() => { if (notices.get(key) === line) notice("", { key }); }, 1000 * seconds);
}

function drawPages() {
  const links = PAGES.map((page) => h("a", {
    href: state.link(page.name), "aria-current": page.name === state.page ? "page" : null, text: page.title,
  }));
  const nav = fill(document.getElementById("pages"), links);
  const here = nav.querySelector("[aria-current]");
  if (here) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2; // where the bar is narrow
}

function drawTools() {
  fill(document.getElementById("tools"),
    api.live ? h("span", { id: "live", class: "live", title: "Live: new results appear by themselves" }, h("span", { class: "dot" }), h("span", { class: "live-text", text: "live" }))
      : h("span", { class: "muted written", title: "A report does not change; protein view shows the sweep as it is now", text: `as of ${api.about.written_at}` }),
    h("button", { type: "button", class: "icon", title: "Dark or light (d)", "aria-label": "Dark or light",
      onclick: () => setTheme(theme() === "dark" ? "light" : "dark") }, h("span", { class: "half-moon", "aria-hidden": "true" })),
    h("button", { type: "button", class: "icon", title: "Keys (?)", "aria-label": "Show the keys", text: "?", onclick: showHelp }));
}

function mark(what) {
  const live = document.getElementById("live");
  live.classList.toggle("gone", what === "gone");
  live.querySelector(".live-text").textContent = what === "gone" ? "no server" : "live";
}

function pulse() {
  const live = document.getElementById("live");
  live.classList.remove("pulse");
  void live.offsetWidth; // restarts the animation
  live.classList.add("pulse");
}

start();
