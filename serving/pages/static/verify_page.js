// The panel that verifies a model: gathers four files, from this server or from a disk, and shows each step as it is done.

import { STEPS, unable, verifyModel } from "./verify.js";

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
  const found = await Promise.all(Object.entries(FILES).map(async ([part, name]) => [part, await partOf(name)]));
  return { trust, ...Object.fromEntries(found) };
}

function partOf(name) {
  if (!own) return bytesAt(panel.dataset.files + name);
  const end = name.slice("model".length); // files that were downloaded one by one have other beginnings
  const matching = [...form.querySelector("#bundle").files].filter((file) => file.name.endsWith(end));
  return bytesOf(matching[0], `the file ${name}`);
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

// Read from what was signed, not from this page.
function summary({ predicate, subject }) {
  const { claim, dataset } = predicate;
  const facts = {
    Model: subject[0].name,
    Promise: `epsilon ${claim.epsilon}, delta ${claim.delta}, for one ${claim.unit.name}, neighbours by ${claim.relation}`,
    "Learnt from": `${dataset.name}, by ${predicate.public.learner}`,
  };
  return element("dl", { class: "facts" }, ...Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function tell(outcome) {
  const failed = outcome.steps.find((step) => step.state === "bad");
  if (!outcome.ok) {
    conclude("bad", "Not verified", `${failed?.title ?? "A step"}: this failed. Do not rely on this model.`);
    return;
  }
  const whose = fromElsewhere() ? "your keys" : "this server’s keys";
  const worth = fromElsewhere()
    ? "with keys that did not come from this server."
    : "so all of it fits together. With keys from elsewhere you would not have to believe this server’s.";
  const open = outcome.steps.find((step) => step.state === "open");
  if (open) conclude("warn", `Verified with ${whose}, but for epsilon’s arithmetic`, `Every other step passed, ${worth} ${open.says}`, summary(outcome.statement));
  else conclude("good", `Verified with ${whose}`, `Every step passed, ${worth}`, summary(outcome.statement));
}

function begin() {
  steps.replaceChildren(...STEPS.map(([id, title]) => row({ id, title, state: "waiting" })));
}

async function run() {
  button.disabled = true;
  conclude("", "Verifying…");
  begin();
  try {
    tell(await verifyModel(await gather(), show));
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
