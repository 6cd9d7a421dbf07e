// Runs before the page is drawn, so that a dark page never flashes white. The rest of the theme is lib/theme.js.
// It also asks for all modules of the page that the address names at once: each would wait for the one that imports it.
(function () {
  let chosen = "";
  try { chosen = localStorage.getItem("protein.theme") || ""; } catch { /* storage may be switched off */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";

  const modules = JSON.parse(document.querySelector("meta[name=modules]")?.content || "{}"); // a report has none
  const page = /^#\/?([^/?]*)/.exec(location.hash)?.[1] || (location.hash.includes("sweep=") ? "overview" : "home");
  for (const name of [...(modules[""] || []), ...(modules[page] || [])]) {
    const link = document.createElement("link");
    link.rel = "modulepreload";
    link.href = new URL(`../${name}`, document.currentScript.src).href;
    if (name.startsWith("vendor/")) link.fetchPriority = "low"; // large, and drawn last
    document.head.append(link);
  }
})();
