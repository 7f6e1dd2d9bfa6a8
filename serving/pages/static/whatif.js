// The what-if form: whenever a value changes, ask the model again, and show what it answers and what each feature adds.

const form = document.querySelector("form.whatif");
const reference = document.getElementById("model").dataset.model;
const asks = form ? [...form.querySelectorAll(".ask")] : [];
const additive = form?.dataset.addsUp === "true";
const classes = JSON.parse(form?.dataset.classes ?? "[]");
const CONTROL = "select, input:not([type=range])";
const CALENDAR = ["date", "datetime", "time"];
const WAIT = 60; // milliseconds after the last change
let latest = null;

const number = (value, places) => value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
const signed = (value, places) => `${value < 0 ? "" : "+"}${number(value, places)}`;
const placesFor = (most) => Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(most)))); // three digits of the largest
const percent = (share) => `${(100 * share).toFixed(1)} %`;

function valueOf(ask) {
  const text = ask.querySelector(CONTROL).value;
  if (text === "") return null;
  if (ask.dataset.kind === "numeric") return Number(text);
  if (CALENDAR.includes(ask.dataset.kind)) return text; // as it stands: ISO 8601
  if (ask.dataset.kind === "boolean") return text === "true";
  return text === "?" ? another(ask) : text.slice(1); // choices are written "=value"
}

// A text that the schema does not list.
function another(ask) {
  const listed = [...ask.querySelector("select").options].map((option) => option.value.slice(1));
  let text = "another value";
  while (listed.includes(text)) text += "_";
  return text;
}

const recordOf = () => Object.fromEntries(asks.map((ask) => [ask.dataset.feature, valueOf(ask)]));

async function post(path, record, signal) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: reference, records: [record] }),
    signal,
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error?.message ?? `The server answered ${answer.status}.`);
  return body;
}

async function ask() {
  latest?.abort();
  latest = new AbortController();
  const record = recordOf();
  try {
    const predict = form.dataset.covers === "true" ? "/predict?cover=.9" : "/predict";
    const paths = additive ? [predict, "/explain"] : [predict];
    const [predicted, explained] = await Promise.all(paths.map((path) => post(path, record, latest.signal)));
    tell(predicted);
    if (explained) explain(explained, predicted.predictions[0]);
    document.dispatchEvent(new CustomEvent("dpserve:record", { detail: record }));
  } catch (error) {
    if (error.name !== "AbortError") form.querySelector(".said").textContent = error.message;
  }
}

const short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });

function tell({ predictions, probabilities, cover }) {
  const answer = predictions[0];
  form.querySelector(".said").textContent = classes.length ? String(answer) : short(answer);
  if (cover) {
    const truths = cover.sets ? cover.sets[0].join(" or ") || "no class is likely enough" : cover.ends[0].map(short).join(" to ");
    form.querySelector(".cover").textContent = `Holds the truth in 90 of 100: ${truths}.`;
  }
  const chances = (probabilities?.[0] ?? []).map((chance, at) => chanceRow(classes[at], chance, String(answer) === classes[at]));
  form.querySelector(".chances").replaceChildren(...chances);
}

function chanceRow(label, chance, chosen) {
  const row = document.createElement("li");
  const bar = document.createElement("i");
  row.className = chosen ? "chosen" : "";
  bar.style.inlineSize = `${100 * chance}%`;
  row.append(Object.assign(document.createElement("span"), { textContent: label }),
    Object.assign(document.createElement("b"), { textContent: percent(chance) }), bar);
  return row;
}

// Of several classes, what speaks for the one that is answered.
function explain({ features, contributions, unit, base }, answer) {
  const several = Array.isArray(base);
  const at = several ? classes.indexOf(String(answer)) : 0;
  const adds = new Map(features.map((name, place) => [name, several ? contributions[0][place][at] : contributions[0][place]]));
  const most = Math.max(...[...adds.values()].map(Math.abs), 1e-12);
  const places = placesFor(most);
  for (const each of asks) push(each, adds.get(each.dataset.feature), most, places);
  const start = several ? base[at] : base;
  const what = several ? `logits of “${answer}”` : unit;
  const pairs = features.filter((name) => !asks.some((each) => each.dataset.feature === name)).map((name) => `${name} ${signed(adds.get(name), places)}`);
  const together = pairs.length ? ` Two together: ${pairs.join(", ")}.` : "";
  form.querySelector(".why").textContent = `Bars and figures: what each value adds to the ${what}, from a base of ${number(start, places)}.${together} They add up to ${number([...adds.values()].reduce((a, b) => a + b, start), places)}.`;
}

function push(each, adds, most, places) {
  const bar = each.querySelector(".push i");
  bar.className = adds < 0 ? "less" : "more";
  bar.style.inlineSize = `${(50 * Math.abs(adds)) / most}%`;
  each.querySelector("output").textContent = signed(adds, places);
}

function follow(each) {
  const [slider, field] = [each.querySelector("input[type=range]"), each.querySelector("input[type=number]")];
  slider?.addEventListener("input", () => { field.value = slider.value; });
  field?.addEventListener("input", () => {
    if (slider && field.value !== "") slider.value = field.value;
    slider?.classList.toggle("unknown", field.value === "");
  });
}

const changed = (each) => [...each.querySelectorAll("select, input[type=number]")]
  .some((one) => (one.selectedOptions ? !one.selectedOptions[0].defaultSelected : one.value !== one.defaultValue));

// Of many features the form shows the first, which matter most, those that were changed, and those that are looked for.
function search(find) {
  const [field, all, told] = ["input", "button", "p"].map((name) => find.querySelector(name));
  const first = new Set(asks.filter((each) => !each.hidden));
  const show = () => {
    const [wanted, everything] = [field.value.trim().toLowerCase(), all.getAttribute("aria-pressed") === "true"];
    for (const each of asks) each.hidden = wanted ? !each.dataset.feature.toLowerCase().includes(wanted) : !(everything || first.has(each));
    all.textContent = everything ? "Show the first alone" : "Show all";
    told.textContent = wanted ? `${asks.filter((each) => !each.hidden).length} of ${asks.length}` : "";
  };
  field.addEventListener("input", (event) => { event.stopPropagation(); show(); });
  all.addEventListener("click", () => { all.setAttribute("aria-pressed", String(all.getAttribute("aria-pressed") !== "true")); show(); });
  for (const each of asks) each.addEventListener("input", () => {
    if (!changed(each)) return; // as when the form starts again
    first.add(each);
    each.hidden = false;
  });
}

// A click on a place of a picture puts the form there.
function put({ detail: { feature, value } }) {
  const each = asks.find((one) => one.dataset.feature === feature);
  const control = each?.querySelector(CONTROL);
  if (!control) return;
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

if (form) {
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  };
  asks.forEach(follow);
  if (form.querySelector(".find")) search(form.querySelector(".find"));
  form.addEventListener("input", soon);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => asks.forEach((each) => {
    each.querySelector("input[type=number]")?.dispatchEvent(new Event("input", { bubbles: true }));
  }) ?? ask()));
  document.addEventListener("dpserve:put", put);
  ask();
}
