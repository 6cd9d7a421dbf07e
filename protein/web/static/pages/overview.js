// The page Overview, where a sweep opens: what is best, whether to trust it, what matters, what next; then how it went.
// Of several chosen sweeps, the first; the picker shows another one. All sentences are the server's (protein/api/overview.py).

import { confirmed, fill, h, stateOf } from "../lib/dom.js";
import { percent, score, seconds, sentence } from "../lib/format.js";
import { Asking, follower } from "../lib/slow.js";
import { spark } from "../lib/spark.js";
import { commandLine, nameOf, stateMark, trialLink } from "../lib/trials.js";
import { course } from "./overview-course.js";

const MOST_CHANGES = 4; // that are shown at once
const MOST_FACTORS = 4; // that have a row; all have one that matter

export async function render(root, context) {
  const { api, state, signal, notice } = context;
  const name = state.sweeps[0];
  const asking = new Asking();
  const rooms = {};
  let found = null;
  let models = { state: "computing", error: "" };
  let near = null;
  let detailed = null;
  // What runs costs more from second to second, and a process may end without a word: the store tells no news of either.
  const follow = follower(() => api.live && found.running.length > 0, async () => { await load(); draw(); }, signal);
  await load();
  if (signal.aborted) return {};
  build();
  ask();
  follow();
  return {
    async update() {
      await load();
      if (signal.aborted) return;
      draw();
      ask();
      follow();
      detailed?.update();
    },
  };

  async function load() {
    const answer = await api.get("/overview", { sweep: name }, { signal });
    found = { ...answer, found: answer.found ?? found?.found ?? null };
  }

  function ask() {
    asking.whenReady("findings", api, "/overview/findings", { sweep: name }, signal, (answer) => {
      models = answer;
      if (answer.value) found.found = answer.value;
      drawFindings();
      if (answer.state !== "computing") offerCourse();
    }).catch((error) => { if (error.name !== "AbortError") notice(error.message, { kind: "warn", key: "findings", seconds: 8 }); });
  }

  function build() {
    for (const room of ["head", "running", "best", "next", "trust", "matters", "failures", "course"]) rooms[room] = h("div", { class: `room-${room}` });
    root.append(rooms.head, rooms.running, h("div", { class: "answers" }, h("div", { class: "stack" }, rooms.best, rooms.trust), h("div", { class: "stack" }, rooms.matters, rooms.next)), rooms.failures, rooms.course);
    draw();
  }

  /** How it went needs all trials and a library for charts: it comes when the answers are there and somebody scrolls to it. */
  function offerCourse() {
    if (near || signal.aborted) return;
    fill(rooms.course, h("h2", { class: "course-head", text: "How it went" }));
    near = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      near.disconnect();
      detailed = course(rooms.course, context);
    });
    near.observe(rooms.course);
    signal.addEventListener("abort", () => near.disconnect());
  }

  function draw() {
    drawHead();
    drawRunning();
    drawFailures();
    drawFindings();
  }

  function drawHead() {
    const share = found.budget_seconds ? found.spent_seconds / found.budget_seconds : null;
    const asked = found.requested;
    const mayRun = !["ended", "gone"].includes(found.life);
    fill(rooms.head, h("header", { class: "trial-head" },
      h("h1", { text: name }), h("span", { class: "muted", text: `${found.env}, ${found.method}${found.lower_is_better ? ", lower is better" : ""}` }),
      h("span", { class: "space" }),
      api.live && (asked !== "run" || mayRun) ? h("div", { class: "controls" },
        asked === "run" ? [button("Pause", "pause", "Start no new trial; those that run go on"), button("Stop", "stop", "End the sweep as Ctrl-C does: running trials are interrupted")]
          : button(asked === "pause" ? "Go on" : "Take it back", "run", "The sweep may start trials again")) : null),
    h("p", { class: "overview-line" }, found.counts.length ? `${found.counts.join(", ")}; ` : "", `${found.spent}.`,
      share === null ? null : h("span", { class: "meter", role: "img", "aria-label": `${percent(share)} of the budget` }, h("i", { style: { width: `${Math.min(100, 100 * share)}%` } }))),
    found.state.map((line) => said(line, h("p", { class: asked === "run" && found.life === "runs" ? "" : asked === "run" && ["ended", "none"].includes(found.life) && !found.ended.startsWith("error: ") ? "muted" : "warn-text", text: line.text }))));
  }

  function button(text, request, title) {
    return h("button", { type: "button", class: "button", text, title, onclick: async (event) => {
      if (request === "stop" && !(await confirmed(`Stop ${name}?`, found.stop, "Stop the sweep"))) return;
      event.target.disabled = true;
      try {
        await api.post("/request", { sweep: name, request }); // also where the page is left meanwhile
        if (signal.aborted) return;
        if (request !== "run" && found.life !== "runs") notice(`Nothing runs. The wish is kept: a process that runs '${name}' follows it.`, { key: "request", seconds: 8 });
        await load();
        drawHead();
      } catch (error) {
        event.target.disabled = false;
        if (error.name !== "AbortError") notice(error.message, { kind: "error", key: "request", seconds: 8 });
      }
    } });
  }

  function drawRunning() {
    if (!found.running.length) return fill(rooms.running);
    const best = found.curves.find((one) => one.number === found.best_measured);
    return fill(rooms.running, card("Running now", h("div", { class: "running-now" }, found.running.map((one) => {
      const curve = found.curves.find((other) => other.number === one.number);
      const left = one.expected_seconds === null ? "" : one.expected_seconds > one.cost_seconds
        ? `, about ${seconds(one.expected_seconds - one.cost_seconds)} left` : ", longer than expected";
      return h("div", { class: "running-trial" },
        h("div", {}, trialLink(state, name, one.number, `trial ${one.number}`), h("span", { class: "muted", text: one.score === null ? " no score yet" : ` score ${score(one.score)}` })),
        spark(curve, best?.number === one.number ? null : best, { label: `Score of trial ${one.number} over seconds of training`, lower: found.lower_is_better }),
        h("div", { class: "faint", text: `${seconds(one.cost_seconds)} so far${left}` }), h("div", { class: "faint origin", title: one.origin, text: one.origin }));
    })), best ? h("p", { class: "hint-line faint", text: `Grey: trial ${best.number}, the best measured. Better is up.` }) : null));
  }

  function drawFailures() {
    const failures = found.failures;
    fill(rooms.failures, failures.length ? card("Failures", h("table", { class: "facts" }, h("tbody", {}, failures.map((one) => h("tr", {},
      h("th", { scope: "row" }, stateMark("failed", one.kind)), h("td", { class: "number", text: String(one.count) }),
      h("td", { class: "failure-reason" }, h("div", { class: "reason-line", title: one.reason, text: one.reason }), h("span", { class: "faint" }, "trial ", one.numbers.map((number, i) => [i ? ", " : "", trialLink(state, name, number)]), one.count > one.numbers.length ? " and earlier ones" : ""))))))) : null);
  }

  function drawFindings() {
    const told = found.found;
    const computing = models.state === "computing";
    const wait = (text) => h("p", { class: "muted" }, h("span", { class: "spinner small", "aria-hidden": "true" }), text);
    const none = told ? told.why_none : models.state === "failed" ? sentence(models.error) : "";
    drawBest(told?.best ?? null, none, computing && !told ? wait("The recommended config is being computed.") : null);
    const trust = told?.trust ?? [];
    fill(rooms.trust, trust.length || !none ? card("Can I trust it?", trust.length ? h("ul", { class: "plain-list" }, trust.map((line) => h("li", {}, said(line, line.text)))) : wait("The trials are being compared.")) : null);
    drawMatters(told, none, wait);
    const next = [...found.next, ...(told?.next ?? [])];
    fill(rooms.next, next.length || !none ? card("What next?", next.length ? h("ul", { class: "plain-list next" }, next.map((line) => h("li", {}, said(line, line.text)))) : computing && !told ? wait("What is worth doing is being computed.")
      : h("p", { class: "muted", text: "Nothing is to be done." })) : null);
  }

  function drawBest(best, none, waiting) {
    const head = "What is best?";
    if (!best) return fill(rooms.best, card(head, h("p", { class: "lead", text: found.headline }), waiting ?? (none && found.trials && none !== found.headline && found.best_measured !== null ? h("p", { class: "muted", text: none }) : null)));
    const rows = (changes) => h("tbody", {}, changes.map((one) => h("tr", {}, h("th", { scope: "row" }, nameOf(one.name)),
      h("td", { class: "number", text: one.value ?? "not active" }), h("td", { class: "number muted", text: one.initial ?? "not active" }))));
    const all = best.changes.length ? best.changes : Object.entries(best.params).map(([key, value]) => ({ name: key, value, initial: "" }));
    const few = Math.min(MOST_CHANGES, all.filter((one) => !found.found.matters.some((other) => other.name === one.name && other.verdict === "hardly")).length || MOST_CHANGES);
    const [shown, rest] = all.length <= few + 1 ? [all, []] : [all.slice(0, few), all.slice(few)];
    return fill(rooms.best, card(head, h("p", { class: "big-answer" }, h("strong", { text: score(best.score.value) }),
      h("span", { class: "muted", text: `${best.score.low === best.score.high ? "expected score" : `expected score (80 % interval ${score(best.score.low)} to ${score(best.score.high)})`}, in ${seconds(best.cost_seconds)} of training` })),
      h("p", { class: "lead" }, best.text, " ", trialLink(state, name, best.trial, `See trial ${best.trial}`)),
      best.is_initial ? null : [h("table", { class: "facts" }, h("thead", {}, h("tr", {}, h("th", { text: best.changes.length ? "differs from the initial config" : "the recommended config" }), h("th", { class: "number", text: "value" }), h("th", { class: "number", text: best.changes.length ? "initial" : "" }))), rows(shown)),
        rest.length ? h("details", {}, h("summary", { class: "muted", text: found.found.matters.length ? `${rest.length} more, which matter less` : `${rest.length} more` }), h("table", { class: "facts" }, rows(rest))) : null],
      best.command ? commandLine(best.command, "Train it") : null,
      h("p", { class: "hint-line" }, h("a", { href: state.link("front"), text: "All scores and costs: the page Front" }))));
  }

  function drawMatters(told, none, wait) {
    const factors = told?.matters ?? [];
    const head = "What matters?";
    if (none) return fill(rooms.matters);
    if (!told) return fill(rooms.matters, card(head, wait("The parameters are being ranked.")));
    if (!factors.length) return fill(rooms.matters, card(head, h("p", { class: "muted", text: told.why_not_ranked })));
    const of = (verdict) => factors.filter((one) => one.verdict === verdict);
    const known = of("maybe").filter((one) => one.best);
    const shown = [...of("matters"), ...known.slice(0, Math.max(0, MOST_FACTORS - of("matters").length))];
    const listed = (head, some) => (some.length ? h("p", { class: "hint-line muted" }, `${head}: `, some.map((one, i) => [i ? ", " : "", nameOf(one.name), one.share ? ` ${percent(one.share.value)}` : ""]), ".") : null);
    const laws = shown.some((one) => one.law);
    const law = (text) => text.replace(" with cost", "").replace(/ \(.*\)/, ""); // its interval is in the title
    return fill(rooms.matters, card(head, shown.length ? h("div", { class: "scroll-x" }, h("table", { class: "facts matters" },
      h("thead", {}, h("tr", {}, h("th", { text: "parameter" }), h("th", { text: "matters" }), h("th", { text: "share" }), h("th", { text: "best values" }), laws ? h("th", { class: "law", text: "with cost" }) : null)),
      h("tbody", {}, shown.map((one) => h("tr", {}, h("th", { scope: "row" }, nameOf(one.name)),
        h("td", {}, h("span", { class: `verdict-mark ${one.verdict}`, text: one.verdict === "matters" ? "yes" : one.verdict })),
        h("td", {}, one.share ? h("span", { class: "share-bar", title: `80 % interval: ${percent(one.share.low)} to ${percent(one.share.high)}` }, h("i", { style: { width: `${100 * one.share.value}%` } }), h("span", { text: percent(one.share.value) })) : ""),
        h("td", { text: one.best }), laws ? h("td", { class: "muted law", title: one.law, text: law(one.law) }) : null))))) : h("p", { class: "muted", text: "No parameter is known to matter." }),
    listed("Maybe", of("maybe").filter((one) => !shown.includes(one))), listed("Hardly", of("hardly")),
    h("p", { class: "hint-line" }, h("a", { href: state.link("parameters"), text: "See them on the page Parameters" }))));
  }
}

/** A sentence with its command below it. */
function said(line, content) {
  return line.command ? [content, commandLine(line.command)] : content;
}

function card(title, ...content) {
  return h("section", { class: "card sweep-card", "aria-label": title }, h("h2", { text: title }), content);
}
