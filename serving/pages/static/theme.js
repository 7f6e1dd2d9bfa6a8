// Before the first paint: the theme that was chosen here, else the system's.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("dpserve-theme"); } catch { /* storage may be forbidden: the system's, then */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
