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
  // Where the server is away, slow, or signed this browser out elsewhere, that is said, and what was asked is asked again.
  const AGAIN = 3000, SLOW = 3000, MOST = 60_000, PASSING = [408, 429, 502, 503, 504];
  const WORDS = {
    away: "The server does not answer. What you typed is still here; it is asked again.",
    slow: "The server is slow; this goes on.",
    late: "The server did not answer in time. Nothing was sent; press once more.",
    gone: "The server does not answer. Nothing was sent, and what you typed is still here; press once more.",
    out: "You were signed out elsewhere. What you typed is still here: sign in in another tab, and press once more.",
    wrong: "The server refused what this page asked. Reload it.",
    again: "This was sent before you came back to this page. Nothing was sent again; press once more to send another.",
    changed: "What stands here has changed meanwhile. Nothing was sent; look at it and press once more.",
  };
  const notice = document.getElementById("away");
  const tell = (what, words = WORDS[what] ?? "") => {
    if (notice.dataset.what === (what ?? "")) return;
    notice.dataset.what = what ?? "";
    notice.querySelector("span").textContent = words;
    notice.querySelector("a").hidden = what !== "out";
    notice.hidden = !what;
  };
  const asked = new WeakMap(); // by what asks: its question on the way, or a mark of one that failed
  document.addEventListener("htmx:beforeRequest", ({ detail: { elt, xhr } }) => {
    asked.set(elt, xhr);
    setTimeout(() => { if (asked.get(elt) === xhr && elt.isConnected) tell("slow"); }, SLOW);
  });
  document.addEventListener("htmx:beforeOnLoad", event => {
    const { elt, xhr, target } = event.detail;
    if (asked.get(elt) !== xhr) return;
    const out = xhr.status === 401 || new URL(xhr.responseURL).pathname === "/ui/login";
    if (out) event.preventDefault(); // the page to sign in at is no part of this one
    if (!out && xhr.status >= 400) return;
    asked.delete(elt);
    target?.toggleAttribute("data-old", out);
    tell(out ? "out" : "");
  });
  const failed = ({ detail: { elt, xhr, target, pathInfo, requestConfig } }) => {
    if (asked.get(elt) !== xhr) return; // a newer question took its place
    const mark = {}, passes = !xhr.status || PASSING.includes(xhr.status);
    asked.set(elt, mark);
    target?.toggleAttribute("data-old", true);
    tell(passes ? "away" : "wrong");
    if (passes && requestConfig.verb === "get") setTimeout(() => {
      if (elt.isConnected && asked.get(elt) === mark) htmx.ajax("get", pathInfo.requestPath, { source: elt, target });
    }, AGAIN);
  };
  for (const kind of ["sendError", "timeout", "responseError"]) document.addEventListener(`htmx:${kind}`, failed);
  let back = performance.getEntriesByType("navigation")[0]?.type === "back_forward"; // by the browser's own button
  const hears = async () => {
    const slow = setTimeout(() => tell("slow"), SLOW);
    try {
      const answer = await fetch("/ui/", { redirect: "manual", cache: "no-store", headers: { Accept: "application/json" }, signal: AbortSignal.timeout(MOST) });
      return answer.status === 401 ? "out" : PASSING.includes(answer.status) ? "late" : "";
    } catch (error) {
      return error.name === "TimeoutError" ? "late" : "gone";
    } finally {
      clearTimeout(slow);
    }
  };
  // A form is sent once, however often its button is pressed, and only to a server that answers.
  document.addEventListener("submit", async event => {
    const form = event.target, button = event.submitter, path = new URL(form.action).pathname;
    if (event.defaultPrevented || (button?.getAttribute("formmethod") ?? form.method) !== "post" || path.startsWith("/ui/log")) return;
    if (form.dataset.heard) { delete form.dataset.heard; return; }
    event.preventDefault();
    if (form.dataset.sent) return;
    form.dataset.sent = "yes";
    const content = () => new URLSearchParams(new FormData(form)).toString(); // with the mark of the price that was seen
    const label = each => each.textContent.trim(); // a panel that was drawn anew and says the same has the same button
    const same = each => each.type === "submit" && each.name === button.name && each.value === button.value && label(each) === label(button);
    const seen = content(), silent = await hears();
    const still = !button || button.isConnected ? button : [...form.elements].find(same);
    const asks = new URLSearchParams(seen), key = `sent ${path}`;
    asks.delete("priced"); // of the same job, asked for anew
    asks.delete("idempotency_key");
    const again = back && sessionStorage[key] === String(asks);
    const trouble = silent || (content() !== seen || !button !== !still ? "changed" : again ? "again" : "");
    if (trouble === "again") back = false;
    tell(trouble);
    if (trouble) { delete form.dataset.sent; return; }
    sessionStorage[key] = String(asks);
    form.dataset.heard = "yes";
    form.requestSubmit(still);
  });
  addEventListener("pageshow", ({ persisted }) => {
    back ||= persisted;
    for (const form of document.forms) { delete form.dataset.sent; delete form.dataset.heard; }
  });
})();
