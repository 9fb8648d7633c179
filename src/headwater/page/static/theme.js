// Light or dark: the choice of the user, else of the system. Runs before the first paint, so that nothing flashes.
(() => {
  const root = document.documentElement;
  let chosen = null;
  try {
    chosen = localStorage.getItem("headwater-theme");
  } catch {
    // no storage: the system decides
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const isDark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
      try {
        localStorage.setItem("headwater-theme", root.dataset.theme);
      } catch {
        // the choice lasts for this page
      }
    });
  });
})();
