// The panel that verifies a model: gathers four files, from this server or from a disk, and shows each step as it is done.

import { STATEMENT_STEPS, STEPS, unable, verifyModel, verifyStatement } from "./verify.js";
import { headline } from "./verify_claim.js";

const FILES = { model: "model.onnx", certificate: "model.onnx.dsse.json", proof: "model.onnx.tlog-proof" };
const WORDS = { good: "passed", bad: "failed", open: "not checked here", waiting: "waiting" };
const MARKS = { good: "✓", bad: "✗", open: "–", waiting: "" };

const panel = document.querySelector(".verify");
const form = panel.querySelector("form");
const button = form.querySelector("button");
const verdict = panel.querySelector(".verdict");
const steps = panel.querySelector(".checks");
const own = !panel.dataset.files;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class CannotRead extends Error {}

async function bytesAt(address) {
  const answer = await fetch(address, { cache: "no-store", credentials: "same-origin" });
  if (!answer.ok || answer.redirected) throw new CannotRead(`${address} was not answered (${answer.status}). Are you still signed in?`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function bytesOf(file, what) {
  if (!file) throw new CannotRead(`Please choose ${what} first.`);
  return new Uint8Array(await file.arrayBuffer());
}

const fromElsewhere = () => form.elements.keys.value === "file";

async function gather() {
  const trust = fromElsewhere()
    ? await bytesOf(form.querySelector("#trust-file").files[0], "a trust file")
    : await bytesAt(panel.dataset.trust);
  if (ofStatement()) {
    return { trust, certificate: await bytesOf(chosen(".dsse.json"), "a statement"), proof: await bytesOf(chosen(".tlog-proof"), "its proof") };
  }
  const found = await Promise.all(Object.entries(FILES).map(async ([part, name]) => [part, await partOf(name)]));
  return { trust, ...Object.fromEntries(found) };
}

const files = () => [...(form.querySelector("#bundle")?.files ?? [])];
const chosen = (end) => files().find((file) => file.name.endsWith(end));

// A statement of worth, or a profile, comes without a model's file.
const ofStatement = () => own && files().length > 0 && !files().some((file) => file.name.includes(".onnx"));

function partOf(name) {
  if (!own) return bytesAt(panel.dataset.files + name);
  return bytesOf(chosen(name.slice("model".length)), `the file ${name}`); // those downloaded one by one have other beginnings
}

function row({ id, title, state, says }) {
  const mark = element("span", { class: "mark", "aria-hidden": "true" }, MARKS[state]);
  const words = element("span", { class: "title" }, title, element("span", { class: "away" }, `: ${WORDS[state]}`));
  const made = element("li", { class: state, id: `step-${id}` }, mark, words);
  if (says) made.append(element("span", { class: "says" }, says));
  return made;
}

function show(step) {
  document.getElementById(`step-${step.id}`).replaceWith(row(step));
}

function conclude(kind, title, ...paragraphs) {
  const words = paragraphs.map((each) => (typeof each === "string" ? element("p", {}, each) : each));
  verdict.replaceChildren(element("div", { class: `notice ${kind}` }, element("h3", {}, title), ...words));
}

// The sum first, where it was made from other releases, and what it is a sum of.
function promised(predicate) {
  const { claim } = predicate;
  const sources = (predicate.dataset ?? predicate.rows).madeFrom ?? [];
  const whole = headline(predicate);
  const parts = sources.map((each) => `the ${each.kind} of entry ${each.entry} of ${each.dataset}${each.samePeople ? "" : ", other people"}: ${each.epsilon}`);
  const behind = sources.length ? ` (by itself ${claim.epsilon}; made from ${parts.join("; ")})` : "";
  return `epsilon ${whole.epsilon}, delta ${whole.delta}${behind}`;
}

// Read from what was signed, not from this page.
function summary({ predicate, subject }) {
  const { claim, dataset } = predicate;
  const facts = {
    Model: subject[0].name,
    Promise: `${promised(predicate)}, for one ${claim.unit.name}, neighbours by ${claim.relation}`,
    "Learnt from": `${dataset.name}, by ${predicate.public.learner}`,
  };
  return element("dl", { class: "facts" }, ...Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

const MOST_LINES = 400;

// What a verified statement says: every figure of a model's worth, or of each column its rows and what is missing.
function figures({ predicate, subject }) {
  const { claim, rows, metrics, columns, better } = predicate; // `better` is signed: shown by the interval
  const facts = {
    [metrics ? "Model" : "Schema"]: subject[0].name,
    "Measured on": `${rows.part} rows of ${rows.dataset}${rows.seen ? ", from which the model learnt" : ""}`,
    Spent: `${promised(predicate)}, for one ${claim.unit.name}`,
    ...(metrics ? { Verdict: `${better ? "shown" : "not shown"} to be better than ${predicate.against?.name ?? "a constant answer"}` } : {}),
  };
  const head = element("dl", { class: "facts" }, ...Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const lines = metrics
    ? metrics.map((each) => [
      [each.metric.replaceAll("_", " "), each.class && `of ${each.class}`, each.group && `in ${each.group}`, each.groups && `between ${each.groups.join(", ")}`].filter(Boolean).join(" "),
      each.value ?? "no result", `${each.low} to ${each.high}`])
    : columns.map((each) => [each.name, each.missing[0] ?? "not told", `${each.missing[1]} to ${each.missing[2]}`]);
  const titles = metrics ? ["Figure", "Value", "Interval"] : ["Column", "Share missing", "Interval"];
  const line = (cells, kind) => element("tr", {}, ...cells.map((text, at) => element(at ? kind : "th", at && kind === "td" ? {} : { scope: kind === "td" ? "row" : "col" }, text)));
  const table = element("table", {}, element("thead", {}, line(titles, "th")), element("tbody", {}, ...lines.slice(0, MOST_LINES).map((each) => line(each, "td"))));
  return element("div", {}, head, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figures" }, table));
}

function tell(outcome) {
  const failed = outcome.steps.find((step) => step.state === "bad");
  if (!outcome.ok) {
    conclude("bad", "Not verified", `${failed?.title ?? "A step"}: this failed. Do not rely on ${ofStatement() ? "it" : "this model"}.`);
    return;
  }
  const whose = fromElsewhere() ? "your keys" : "this server’s keys";
  const worth = fromElsewhere()
    ? "with keys that did not come from this server."
    : "so all of it fits together. With keys from elsewhere you would not have to believe this server’s.";
  const shown = ofStatement() ? figures : summary;
  const open = outcome.steps.find((step) => step.state === "open");
  if (open) conclude("warn", `Verified with ${whose}, but for epsilon’s arithmetic`, `Every other step passed, ${worth} ${open.says}`, shown(outcome.statement));
  else conclude("good", `Verified with ${whose}`, `Every step passed, ${worth}`, shown(outcome.statement));
}

function begin() {
  steps.replaceChildren(...(ofStatement() ? STATEMENT_STEPS : STEPS).map(([id, title]) => row({ id, title, state: "waiting" })));
}

async function run() {
  button.disabled = true;
  conclude("", "Verifying…");
  begin();
  try {
    tell(await (ofStatement() ? verifyStatement : verifyModel)(await gather(), show));
  } catch (error) {
    conclude("bad", "Nothing was verified", error instanceof CannotRead ? error.message : "The files could not be fetched.");
  } finally {
    button.disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.addEventListener("change", () => {
  form.querySelector(".trust-file").hidden = !fromElsewhere();
  verdict.replaceChildren(); // what was said was said of other keys or files
  begin();
});

begin();
const problem = await unable();
if (problem) conclude("warn", "This browser cannot verify here", problem);
button.disabled = Boolean(problem);
