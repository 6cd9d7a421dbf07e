// Runs before the page is drawn, so that a dark page never flashes white. The rest of the theme is lib/theme.js.
(function () {
  let chosen = "";
  try { chosen = localStorage.getItem("protein.theme") || ""; } catch { /* storage may be switched off */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
