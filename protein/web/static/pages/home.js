// The page Home: all sweeps of the store as a table, to find one, to compare some, and to put away those that are done.

import { tick as box } from "../lib/controls.js";
import { fill, h, popover, stateOf } from "../lib/dom.js";
import { filterField } from "../lib/filter.js";
import { ago, counted, MISSING, percent, score, seconds, time, whole } from "../lib/format.js";
import { short } from "../lib/scales.js";
import { stateMark } from "../lib/trials.js";

const MOST_COMPARED = 20; // as in protein/web/viewer.py
const FIRST = 200; // rows that are drawn before somebody asks for more
const SOON = 5_000; // milliseconds between two looks while a sweep runs
const LATE = 30_000;
const USUAL = "-created_at";
// Key to sort by, head, whether a first click sorts downwards, class.
const COLUMNS = [
  ["sweep", "sweep", false, ""], ["state", "state", false, ""], ["env", "environment", false, "wide"], ["score", "best score", true, "number"],
  ["spent_seconds", "spent", true, "number"], ["trials", "trials", true, "number"], ["created_at", "age", true, "number wide"], ["tags", "tags", false, "wide"],
];
const MARKS = { running: "running", paused: "waiting", stopping: "waiting", ended: "complete", failed: "failed", killed: "failed" };

export async function render(root, context) {
  const { api, state, signal, notice, keys } = context;
  let found = null;
  let asked = 0; // an answer to an earlier question is not used
  let most = FIRST;
  const chosen = new Set();
  const filter = filterField({ value: state.get("find"), columns: () => found?.columns ?? [], changed: (text) => state.set({ find: text }) });
  filter.input.placeholder = "Filter: env == pong and state == running";
  filter.input.setAttribute("aria-label", "Filter sweeps");
  const archived = box("archived ones", state.get("archived") === "1", (on) => state.set({ archived: on ? 1 : "" }));
  const count = h("span", { class: "muted counted", role: "status" });
  const actions = h("div", { class: "chosen-bar", role: "group", "aria-label": "The chosen sweeps" });
  const room = h("div", { class: "home-room" });
  await load();
  if (signal.aborted) return {};
  keys.bind("/", "filter", () => filter.input.focus(), signal);
  let looked = Date.now();
  const looking = setInterval(() => {
    const every = found?.rows.some((row) => of(row, "process")) ? SOON : LATE;
    if (document.hidden || Date.now() - looked < every - 100) return;
    looked = Date.now();
    load().catch(() => {}); // the shell says that the server is gone
  }, SOON);
  signal.addEventListener("abort", () => clearInterval(looking));
  return {
    update: load,
    sweepsChanged: load,
    stateChanged(changed) {
      if (changed.includes("find")) filter.set(state.get("find"), false);
      archived.input.checked = state.get("archived") === "1";
      return load();
    },
  };

  async function load() {
    const mine = asked += 1;
    try {
      const answer = await api.get("/home", { filter: state.get("find"), sort: state.get("sort", USUAL), archived: state.get("archived") }, { signal });
      if (mine !== asked) return;
      found = answer;
      filter.fault("");
    } catch (error) {
      if (!found || error.status !== 400) throw error;
      filter.fault(error.message); // the last good rows stay
      return;
    }
    if (!root.childNodes.length) {
      root.append(h("div", { class: "table-bar" }, h("h1", { text: "Sweeps" }), count, h("span", { class: "space" })),
        h("div", { class: "table-bar" }, filter.root, archived.root), actions, room);
    }
    draw();
  }

  function of(row, key) {
    return row[found.shown.indexOf(key)];
  }

  function draw() {
    const names = new Set(found.rows.map((row) => of(row, "sweep")));
    for (const name of chosen) if (!names.has(name)) chosen.delete(name);
    fill(count, found.matching === found.total ? counted(found.total, "sweep") : `${whole(found.matching)} of ${counted(found.total, "sweep")}`,
      found.archived ? `, ${whole(found.archived)} archived` : "");
    drawActions();
    const focused = room.contains(document.activeElement) ? document.activeElement.dataset.key : null; // drawn anew while somebody is there
    if (!found.rows.length) fill(room, stateOf("empty", found.archived ? "All of these sweeps are archived." : "No sweep matches the filter."));
    else {
      fill(room, h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Sweeps" }, h("table", { class: "home-table" }, h("thead", {}, head()), h("tbody", {}, found.rows.slice(0, most).map(line)))),
        found.rows.length > most ? h("button", { type: "button", class: "button", text: `Show all ${whole(found.rows.length)}`, onclick: () => { most = Infinity; draw(); } }) : null,
        found.matching > found.rows.length ? h("p", { class: "hint", text: `Only the first ${whole(found.rows.length)} are listed. A filter finds the others.` }) : null);
    }
    if (focused) room.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function head() {
    const [sorted] = state.get("sort", USUAL).split(",");
    const every = found.rows.length && found.rows.every((row) => chosen.has(of(row, "sweep")));
    return h("tr", {}, h("th", { scope: "col", class: "box" }, h("input", { type: "checkbox", checked: Boolean(every), dataset: { key: " all" }, "aria-label": "Choose all sweeps", onchange: (event) => {
      for (const row of found.rows) if (event.target.checked) chosen.add(of(row, "sweep")); else chosen.delete(of(row, "sweep"));
      draw();
    } })), COLUMNS.map(([key, text, downFirst, cls]) => {
      const down = key === "score" && found.rows.every((row) => of(row, "direction") === "minimize") ? false : downFirst; // the best first
      const now = sorted.replace(/^-/, "") === key ? (sorted.startsWith("-") ? "descending" : "ascending") : null;
      const next = now ? (now === "ascending" ? `-${key}` : key) : (down ? `-${key}` : key);
      return h("th", { scope: "col", class: cls, "aria-sort": now }, h("button", { type: "button", class: "head-button", dataset: { key: ` ${key}` }, text,
        onclick: () => state.set({ sort: next === USUAL ? "" : next }, { replace: false }) }, h("span", { class: "sort-sign", "aria-hidden": "true", text: now === "descending" ? " ↓" : now ? " ↑" : "" })));
    }));
  }

  function line(row) {
    const name = of(row, "sweep");
    const [low, high, budget, spent] = ["score_low", "score_high", "budget_seconds", "spent_seconds"].map((key) => of(row, key));
    const how = of(row, "state");
    const others = [["failed_trials", "failed"], ["interrupted_trials", "interrupted"], ["running_trials", "running"]].filter(([key]) => of(row, key)).map(([key, text]) => `${of(row, key)} ${text}`);
    const best = of(row, "best");
    return h("tr", { class: chosen.has(name) ? "chosen" : null },
      h("td", { class: "box" }, h("input", { type: "checkbox", checked: chosen.has(name), dataset: { key: name }, "aria-label": `Choose ${name}`, onchange: (event) => {
        if (event.target.checked) chosen.add(name); else chosen.delete(name);
        event.target.closest("tr").classList.toggle("chosen", event.target.checked);
        drawActions();
      } })),
      h("th", { scope: "row" }, h("a", { href: `#/?sweep=${encodeURIComponent(name)}`, text: name }), of(row, "archived") ? h("span", { class: "badge", text: "archived" }) : null,
        of(row, "why") && how !== "running" ? h("div", { class: "faint why", title: of(row, "why"), text: of(row, "why") }) : null),
      h("td", {}, stateMark(MARKS[how] ?? "none", how), of(row, "process") ? h("div", { class: "faint", text: of(row, "process") }) : null),
      h("td", { class: "wide" }, of(row, "env"), of(row, "method") === "protein" ? null : h("div", { class: "faint", text: of(row, "method") })),
      h("td", { class: "number" }, best === null ? MISSING : h("a", { href: `#/trial/${encodeURIComponent(name)}/${best}?sweep=${encodeURIComponent(name)}`, title: `trial ${best}`, text: score(of(row, "score")) }),
        best === null ? null : h("div", { class: "faint", text: low === null ? "measured" : `${score(low)} to ${score(high)}` }),
        of(row, "direction") === "minimize" ? h("div", { class: "faint", text: "lower is better" }) : null),
      h("td", { class: "number" }, seconds(spent), h("div", { class: "faint", text: budget === null ? "no budget set" : `of ${short(budget)}` }),
        budget ? h("span", { class: "meter", role: "img", "aria-label": `${percent(spent / budget)} of the budget` }, h("i", { style: { width: `${Math.min(100, 100 * spent / budget)}%` } })) : null),
      h("td", { class: "number" }, whole(of(row, "trials")), others.map((text) => h("div", { class: "faint", text }))),
      h("td", { class: "number wide", title: time(of(row, "created_at")), text: ago(of(row, "created_at")) }),
      h("td", { class: "wide" }, of(row, "tags").map((tag) => h("span", { class: "badge", text: tag }))));
  }

  function drawActions() {
    actions.classList.toggle("open", chosen.size > 0);
    if (!chosen.size) return fill(actions);
    const names = [...chosen];
    const rows = found.rows.filter((row) => chosen.has(of(row, "sweep")));
    const some = names.length > MOST_COMPARED ? `At most ${MOST_COMPARED} sweeps can be looked at together` : null;
    return fill(actions, h("strong", { text: counted(names.length, "sweep") }),
      h("button", { type: "button", class: "button primary", text: "Compare", disabled: names.length < 2 || some, title: some ?? "Over each other, on the page Compare", onclick: () => state.go("compare", { sweep: names, view: "sweeps", filter: "", sel: "" }) }),
      h("button", { type: "button", class: "button", text: "All trials in one table", disabled: some, title: some, onclick: () => state.go("table", { sweep: names, filter: "", sel: "" }) }),
      api.live ? [
        rows.some((row) => !of(row, "archived")) ? h("button", { type: "button", class: "button", text: "Archive", title: "Lists leave them out; nothing is deleted", onclick: () => tag(names, { add_tags: ["archived"] }, "archived") }) : null,
        rows.some((row) => of(row, "archived")) ? h("button", { type: "button", class: "button", text: "Take out of the archive", onclick: () => tag(names, { remove_tags: ["archived"] }, "listed again") }) : null,
        tagMenu(names, rows).root] : null,
      h("span", { class: "space" }), h("button", { type: "button", class: "button quiet", text: "Choose none", onclick: () => { chosen.clear(); draw(); } }));
  }

  function tagMenu(names, rows) {
    return popover("Tag", (panel, close) => {
      const field = h("input", { class: "input", maxlength: "60", placeholder: "Name of a tag", "aria-label": "Name of a tag" });
      const worn = [...new Set(rows.flatMap((row) => of(row, "tags")))];
      const add = () => { const name = field.value.trim(); if (name) { close(); tag(names, { add_tags: [name] }, `tagged “${name}”`); } };
      field.addEventListener("keydown", (event) => { if (event.key === "Enter") add(); });
      panel.append(h("div", { class: "form-row" }, field, h("button", { type: "button", class: "button primary", text: "Add", onclick: add })),
        ...worn.map((name) => h("button", { type: "button", class: "menu-item", text: `Remove “${name}”`, onclick: () => { close(); tag(names, { remove_tags: [name] }, `without “${name}”`); } })));
    }, { title: "Tags of the chosen sweeps" });
  }

  async function tag(names, change, said) {
    const back = { add_tags: change.remove_tags ?? [], remove_tags: change.add_tags ?? [] };
    try {
      await api.post("/tag", { sweeps: names, ...change });
      notice(`${names.length === 1 ? names[0] : counted(names.length, "sweep")}: ${said}.`, { key: "tagged", seconds: 10,
        action: { text: "Undo", run: () => tag(names, back, "as before") } });
      if (!signal.aborted) await load();
    } catch (error) {
      if (error.name !== "AbortError") notice(`Not changed: ${error.message}`, { kind: "error", key: "tagged" });
    }
  }
}
