// What every page has: the theme's switch, the menu on narrow screens, copying, and words for who cannot see a change.
"use strict";
const dpserve = {
  /** Say it to screen readers. */
  say(words) { document.getElementById("said").textContent = words; },
  /** Call `draw` now, and again whenever light turns into dark or back. */
  themed(draw) {
    draw();
    document.addEventListener("dpserve:theme", draw);
  },
};

(() => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const words = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const next = { "": "light", light: "dark", dark: "" };
  const changed = () => document.dispatchEvent(new Event("dpserve:theme"));
  system.addEventListener("change", changed);
  for (const button of document.querySelectorAll(".theme-button")) {
    const word = button.querySelector(".theme-word");
    const show = () => { button.title = word.textContent = words[root.dataset.theme || ""]; };
    button.hidden = false;
    show();
    button.addEventListener("click", () => {
      const chosen = next[root.dataset.theme || ""];
      if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
      try { localStorage.setItem("dpserve-theme", chosen); } catch { /* it holds for this page alone, then */ }
      show();
      changed();
    });
  }
  for (const button of document.querySelectorAll(".menu-button")) {
    button.hidden = false;
    root.classList.add("with-menu");
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
    });
  }
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard?.writeText(button.dataset.copy).then(() => {
      dpserve.say("Copied");
      if (button.classList.contains("copy")) button.textContent = "Copied";
    });
  });
  // What unfolds over the page folds again when something else is chosen, or by Escape.
  const fold = event => {
    for (const each of document.querySelectorAll(".more[open]")) if (event.key === "Escape" || !each.contains(event.target)) each.open = false;
  };
  document.addEventListener("click", fold);
  document.addEventListener("keydown", event => { if (event.key === "Escape") fold(event); });
  // A field that finds rows of a table by what they say.
  for (const field of document.querySelectorAll("[data-rows]")) field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const row of document.querySelectorAll(field.dataset.rows)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  // How long ago, behind every time; what is copied, beside every command.
  const spans = [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3600], ["minute", 60]];
  const since = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const added = () => {
    for (const each of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(each.dateTime) - Date.now()) / 1000;
      const [unit, length] = spans.find(([, size]) => Math.abs(seconds) >= size) ?? ["minute", 60];
      if (Number.isFinite(seconds)) each.dataset.ago = Math.abs(seconds) < 60 ? "just now" : since.format(Math.round(seconds / length), unit);
    }
    for (const command of document.querySelectorAll("main pre:not([data-copied])")) {
      command.dataset.copied = "";
      if (!navigator.clipboard) continue;
      const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet-button copy", textContent: "Copy" });
      button.dataset.copy = command.textContent.trimEnd();
      command.after(button);
    }
  };
  addEventListener("DOMContentLoaded", added);
  document.addEventListener("htmx:load", added);
  // What a link on the page points at is unfolded.
  const unfold = () => {
    for (const folded of document.getElementById(location.hash.slice(1))?.querySelectorAll(":scope > details") ?? []) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
  // A form is sent once, however often its button is pressed.
  document.addEventListener("submit", event => {
    if (event.defaultPrevented || event.target.dataset.sent) { if (event.target.dataset.sent) event.preventDefault(); return; }
    if (event.target.method === "post") event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { for (const form of document.forms) delete form.dataset.sent; });
})();
