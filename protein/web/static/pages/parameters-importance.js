// Which parameters matter, by three methods that may disagree: each with its name and its caveat.

import { answered, segments } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { counted, percent, sentence } from "../lib/format.js";
import { shortNames } from "../lib/coloring.js";
import { chart } from "../lib/echart.js";
import { patient } from "../lib/slow.js";

export async function importanceCard(context, tools, room) {
  const { api, state, signal } = context;
  const target = () => (state.get("target") === "cost" ? "cost" : "score");
  let found = await load();
  const body = room();
  const tabs = segments("Importance for", [["score", "for the score"], ["cost", "for the cost"]], target(), (value) => state.set({ target: value === "cost" ? "cost" : "" }));
  const about = h("dl", { class: "methods" });
  const chartRoom = h("div", {});
  body.append(chartRoom, about);
  const height = () => 76 + 34 * found.names.length;
  const made = await chart(chartRoom, { name: `importance of parameters of ${state.sweeps[0]}`, option, signal, height: height(), csv: table });
  fill(tools, h("span", { class: "space" }), tabs.root, made.menu);
  describe();

  function load() {
    return patient(api, "/importance", { sweep: state.sweeps, target: target() }, signal).then(answered);
  }
  function usable() {
    return found.methods.filter((one) => !one.problem);
  }

  function option(theme) {
    const methods = usable();
    const short = shortNames(found.names);
    // In the order of the mean share over the methods, the most important at the top.
    const mean = (name) => methods.reduce((sum, one) => sum + one.shares[name], 0);
    const names = [...found.names].sort((a, b) => mean(a) - mean(b));
    return {
      grid: { left: 10, right: 60, top: methods.length ? 34 : 10, bottom: 30, containLabel: true },
      legend: { left: 0, selectedMode: true },
      tooltip: { trigger: "item", formatter: (one) => tipOf(methods[one.seriesIndex], names[one.dataIndex]) },
      xAxis: { type: "value", min: 0, axisLabel: { formatter: (value) => percent(value) } },
      yAxis: { type: "category", data: names.map((name) => short[name]), axisLabel: { color: theme.text }, axisTick: { show: false }, splitLine: { show: false } },
      series: methods.map((one, i) => ({ name: shortTitle(one), type: "bar", barMaxWidth: 8, barGap: "30%", barCategoryGap: "34%", itemStyle: { color: theme.series[i], borderRadius: 2 },
        data: names.map((name) => one.shares[name]) })),
    };
  }

  function tipOf(method, name) {
    const value = method.values[name];
    const spread = method.spread[name];
    return h("div", { class: "tip-body" }, h("strong", { text: name }), h("table", {},
      h("tr", {}, h("td", { class: "muted", text: shortTitle(method) }), h("td", { text: percent(method.shares[name], 1) })),
      h("tr", {}, h("td", { class: "muted", text: method.method === "length-scales" ? "length scale" : "its own number" }),
        h("td", { text: `${Number(value.toPrecision(3))}${spread ? ` ± ${Number(spread.toPrecision(2))}` : ""}` }))));
  }

  function describe() {
    fill(about, found.methods.map((one) => [
      h("dt", {}, one.title, one.num_trials ? h("span", { class: "muted", text: `, ${counted(one.num_trials, "trial")}` }) : null),
      one.problem ? h("dd", { class: "warn-text", text: sentence(one.problem) })
        : h("dd", {}, `${sentence(one.meaning)} ${sentence(one.caveat)}`, one.warning ? h("strong", { class: "warn-text", text: ` ${sentence(one.warning)}` }) : null),
    ]));
    body.dataset.methods = usable().map((one) => one.method).join("|");
    chartRoom.hidden = !usable().length;
  }

  function table() {
    return { header: ["parameter", ...usable().flatMap((one) => [`${one.method} share`, `${one.method} value`])],
      rows: found.names.map((name) => [name, ...usable().flatMap((one) => [one.shares[name], one.values[name]])]) };
  }

  return { async refresh() { tabs.set(target()); found = await load(); made.set(option); describe(); }, fitting: () => found.fitting };
}

function shortTitle(one) {
  return { "ped-anova": "PED-ANOVA", permutation: "permutation (forest)", "length-scales": "length scales (engine)" }[one.method] || one.method;
}
