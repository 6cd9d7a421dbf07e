// Dark or light: the system's choice, or the reader's own. Charts ask `colors()` and listen with `onTheme`.

const listeners = new Set();

/** Returns "dark" or "light". */
export function theme() {
  return document.documentElement.dataset.theme || "light";
}

/** Sets "dark" or "light"; remembered by the browser where it differs from the system's choice. */
export function setTheme(name) {
  try {
    if (name !== systemTheme()) localStorage.setItem("protein.theme", name);
    else localStorage.removeItem("protein.theme");
  } catch { /* storage may be switched off: the choice then lasts as long as the page */ }
  apply(name);
}

/** Calls `listener` after each change of the theme, until the signal is aborted. */
export function onTheme(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener));
}

/** Returns the theme's colours as texts: for charts, which cannot read CSS variables. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: read("text"), muted: read("muted"), faint: read("faint"), line: read("line"), grid: read("grid"),
    surface: read("surface"), page: read("page"), accent: read("accent"), good: read("good"), bad: read("bad"),
    warn: read("warn"), select: read("select"),
    series: Array.from({ length: 10 }, (_, i) => read(`series-${i + 1}`)),
  };
}

function systemTheme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function apply(name) {
  if (theme() === name) return;
  document.documentElement.dataset.theme = name;
  for (const listener of [...listeners]) listener(name);
}

/** Follows the system's choice where the reader has made none. */
export function followSystem() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    let chosen = "";
    try { chosen = localStorage.getItem("protein.theme") || ""; } catch { /* as above */ }
    if (!chosen) apply(systemTheme());
  });
}
