// The pictures of a model: fetched as SVG once they come near the screen. Under each a table of the same figures, for
// whoever does not see it. Their colours are the page's own, by name.

const model = document.getElementById("model").dataset;
const room = document.getElementById("plots");
// Features drawn before more are asked for: where there are many, as fill a row; else a few more rather than a button.
const few = "few" in room.dataset, ROW = 3;
const FIRST = matchMedia("(max-width: 46rem)").matches ? 4 : 12, SPARE = 3;
const DAY = 86_400_000; // milliseconds
const tip = document.createElement("div");
let [own, features, record, found] = [false, [], null, null];

const amount = (value) => (Math.abs(value) < 5e-7 ? "0" : `${value > 0 ? "+" : "−"}${plain(Math.abs(value))}`);
const plain = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

async function fetched(after) {
  const answer = await fetch(`${model.at}/shapes?after=${after}${own ? "&own=1" : ""}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

// `chosen`: what a click on a place does, given its label.
function draw(frame, { svg, places }, chosen) {
  const inside = element("div", { "aria-hidden": "true" }); // the frame is named, and the table has the figures
  inside.innerHTML = svg; // the server's own, with every name escaped
  frame.replaceChildren(inside);
  inside.querySelectorAll("path[aria-label]").forEach((hit, at) => {
    hit.dataset.place = places[at] ?? "";
    hit.addEventListener("pointerenter", () => point(hit));
    hit.addEventListener("pointerleave", () => point(null));
    if (chosen) hit.addEventListener("click", () => chosen(hit.dataset.place));
  });
}

// What lies under the pointer, in words.
function point(hit) {
  tip.hidden = !hit;
  if (!hit) return;
  tip.textContent = hit.getAttribute("aria-label");
  const box = hit.getBoundingClientRect();
  tip.style.left = `${Math.min(Math.max(8, box.x + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8) + scrollX}px`;
  tip.style.top = `${(box.y > tip.offsetHeight + 12 ? box.y - tip.offsetHeight - 8 : box.bottom + 8) + scrollY}px`;
}

// A table that is made when it is first opened.
function figures(title, head, rows) {
  const details = element("details", {}, element("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector("table")) details.append(tableOf(title, head, rows()));
  });
  return details;
}

function tableOf(title, head, rows) {
  const heads = head.map((words, at) => element("th", { scope: "col", class: at ? "number" : "" }, words));
  const lines = rows.map(([first, ...others]) => element("tr", {},
    element("th", { scope: "row" }, String(first)), ...others.map((each) => element("td", { class: "number" }, String(each)))));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
}

// ---- one feature

function card(feature) {
  const frame = element("div", { class: "frame", role: "img", "aria-label": described(feature) });
  const heading = element("div", { class: "between" }, element("h3", { class: "away" }, feature.feature), ...editing(feature.feature));
  return { feature, frame, node: element("figure", { class: "card plot", "data-feature": feature.feature }, heading, frame, featureTable(feature)) };
}

// The way to the page that changes it, for whoever may.
function editing(name) {
  if (!("edits" in model)) return [];
  return [element("a", { class: "small", href: `${model.at}/edit?feature=${encodeURIComponent(name)}`, "aria-label": `Edit ${name}` }, "Edit")];
}

function described(feature) {
  const all = feature.shapes.flatMap(({ label, bins }) => bins.map((bin) => ({ ...bin, series: label })));
  const [least, most] = [all.reduce((a, b) => (b.adds < a.adds ? b : a)), all.reduce((a, b) => (b.adds > a.adds ? b : a))];
  const said = (bin) => `${amount(bin.adds)} at ${bin.label}${feature.shapes.length > 1 ? ` for ${bin.series}` : ""}`;
  return `What ${feature.feature} adds to the ${found.unit}: from ${said(least)} to ${said(most)}. The table below has all of it.`;
}

function featureTable(feature) {
  const several = feature.shapes.length > 1;
  const bins = feature.shapes.flatMap(({ label, bins: each }) => each.map((bin) => ({ ...bin, series: label })));
  const [noisy, counted] = [bins.some((bin) => bin.error !== null), bins.some((bin) => bin.count !== null)];
  const head = ["Value", ...(several ? ["Class"] : []), "Adds", ...(noisy ? ["Standard error"] : []), ...(counted ? ["Records (noisy)"] : [])];
  const row = (bin) => [bin.label, ...(several ? [bin.series] : []), amount(bin.adds), ...(noisy ? [plain(bin.error ?? 0)] : []), ...(counted ? [bin.count ?? ""] : [])];
  return figures(`Figures of ${feature.feature}`, head, () => bins.map(row));
}

function drawFeature({ feature, frame }) {
  draw(frame, feature.drawing, (label) => put(feature, label));
  if (record) mark({ feature, frame });
}

// A click on a place puts the what-if form there.
function put(feature, label) {
  const bins = feature.shapes[0].bins;
  const at = bins.findIndex((bin) => bin.label === label);
  if (at < 0) return;
  document.dispatchEvent(new CustomEvent("dpserve:put", { detail: { feature: feature.feature, value: valueAt(feature, bins, at) } }));
}

function valueAt(feature, bins, at) {
  if (at === bins.length - 1) return "";
  if (feature.kind === "boolean") return String(at === 1);
  if (feature.kind === "categorical") return at === bins.length - 2 ? "?" : `=${bins[at].label}`; // as the form has them
  const { low, high } = bins[at];
  if (feature.calendar) return dateOf(feature.calendar, low === null || high === null ? high ?? low + 1 : (low + high) / 2);
  return String(Number((low === null || high === null ? high ?? low + 1 : (low + high) / 2).toPrecision(4)));
}

// A date or a time as its number, and back: days or seconds since 1970, seconds since midnight.
function numberOf({ calendar }, value) {
  if (!calendar) return value;
  const moment = Date.parse(`${calendar === "time" ? "1970-01-01T" : ""}${value}${calendar === "date" ? "" : "Z"}`);
  return moment / (calendar === "date" ? DAY : 1000);
}

function dateOf(calendar, number) {
  const iso = new Date(Math.floor(number) * (calendar === "date" ? DAY : 1000)).toISOString();
  return { date: iso.slice(0, 10), datetime: iso.slice(0, 19), time: iso.slice(11, 19) }[calendar];
}

// The bin that a value falls into; missing is the last, of categories "other" the one before it.
function binOf(feature, bins, value) {
  if (value === null || value === undefined) return bins.at(-1);
  if (feature.kind === "numeric") {
    value = numberOf(feature, value);
    return bins.find((bin) => bin.interval && (bin.low === null || value > bin.low) && (bin.high === null || value <= bin.high));
  }
  if (feature.kind === "boolean") return bins[value ? 1 : 0];
  return bins.slice(0, -2).find((bin) => bin.label === String(value)) ?? bins.at(-2);
}

// The place where the what-if form stands.
function mark({ feature, frame }) {
  const label = binOf(feature, feature.shapes[0].bins, record[feature.feature])?.label;
  for (const hit of frame.querySelectorAll("[data-place]")) hit.classList.toggle("here", hit.dataset.place === label);
}

// ---- the section

function importances() {
  const most = found.importances.slice(0, 3).map((row) => row.feature).join(", ");
  const frame = element("div", { class: "frame", role: "img", "aria-label": `How much each feature matters; most: ${most}. The table below has all of it.` });
  const all = figures("Figures", ["Feature", found.unit], () => found.importances.map((row) => [row.feature, plain(row.size)]));
  return { drawing: found.matters, frame, node: element("figure", { class: "card plot" }, element("h3", { class: "away" }, "What matters most"), frame, all) };
}

function votes() {
  const { name, rows, drawing } = found.votes;
  const frame = element("div", { class: "frame", role: "img", "aria-label": `${name}. The table below has them all.` });
  const words = found.labels.length > 1 ? "Each adds its votes to its class where its test holds, and takes as many away where not." : `Each votes so much for “${found.labels[0]}” where its test holds, and as much against it where not.`;
  const all = figures("Figures", ["Where", "Votes", "For"], () => rows.map((row) => [row.test, row.votes, row.label]));
  return { drawing, frame, node: element("figure", { class: "card plot" }, element("h3", { class: "away" }, name), frame, element("p", { class: "quiet small" }, words), all) };
}

// The colour of each class.
function key(drawing) {
  const frame = element("div", { class: "frame", role: "img", "aria-label": `The colours of ${found.labels.join(", ")}` });
  return { drawing, frame, node: element("figure", { class: "card plot" }, frame) };
}

// What two features add together: a map of each pair, all on one scale.
function pairMap(pair) {
  const strongest = pair.cells.reduce((a, b) => (Math.abs(b.adds) > Math.abs(a.adds) ? b : a));
  const label = `What ${pair.feature} add together to the ${found.unit}; most: ${amount(strongest.adds)} at ${strongest.row} and ${strongest.column}. The table below has all of it.`;
  const frame = element("div", { class: "frame", role: "img", "aria-label": label });
  const table = figures(`Figures of ${pair.feature}`, [...pair.features, "Adds", "Standard error", "Records (noisy)"], () => pair.cells.map(
    (cell) => [cell.row, cell.column, amount(cell.adds), cell.error === null ? "" : plain(cell.error), cell.count ?? ""]));
  const heading = element("div", { class: "between" }, element("h3", { class: "away" }, pair.feature), ...editing(pair.feature));
  return { drawing: pair.drawing, frame, node: element("figure", { class: "card plot" }, heading, frame, table) };
}

function together(maps) {
  const words = "Beside what each adds by itself: blue adds, orange takes away, pale is within two standard errors of the noise.";
  const all = element("div", { class: "plot-grid" }, ...maps.map((each) => each.node));
  const heading = element("h3", { id: "together-h" }, "What two features add together"), says = element("p", { class: "quiet small" }, words);
  if (!few) return element("section", { "aria-labelledby": "together-h" }, heading, says, all);
  const folded = element("details", { class: "card" }, element("summary", {}, heading), says, all);
  return folded;
}

function trees() {
  const parts = found.parts.toLowerCase(), one = parts.replace(/s$/, "");
  const text = found.trees.map((tree, at) => `${one} ${at + 1}\n${tree}`).join("\n\n");
  const more = found.of > found.trees.length ? ` (the first ${found.trees.length} of ${found.of})` : "";
  return element("details", { class: "card" }, element("summary", {}, `The ${parts} as text${more}`), element("pre", { tabindex: "0", "aria-label": found.parts }, text));
}

function controls() {
  const box = element("input", { type: "checkbox", id: "own-scale" });
  box.addEventListener("change", () => rescale(box.checked).catch(failed));
  const label = element("label", { class: "check small" }, box, element("span", {}, "Each on a scale of its own"));
  const bands = found.features.some(({ shapes }) => shapes[0].bins.some((bin) => bin.error !== null));
  const words = `In ${found.unit}. ${bands ? "Bands: one and two standard errors of the privacy noise alone. " : ""}Shaded is where the form below stands; a click on a place moves it there.`;
  return element("div", { class: "between" }, element("p", { class: "quiet small" }, words), label);
}

const grid = element("div", { class: "plot-grid" });
const more = element("button", { type: "button", class: "button second" }, "");
let waiting = [];
let next = null;

// So many more features; those that the server has not given yet are fetched when they are needed.
async function add(count) {
  while (waiting.length < count && next !== null) {
    const part = await fetched(next);
    waiting.push(...part.features);
    next = part.next;
  }
  const cards = waiting.splice(0, count).map(card);
  features.push(...cards);
  grid.append(...cards.map((each) => each.node));
  const left = found.of - features.length;
  more.hidden = left === 0;
  more.textContent = `Show ${Math.min(left, 24)} more of ${found.of} features`;
  cards.forEach(drawFeature);
}

// The features that are drawn already, on another scale.
async function rescale(chosen) {
  own = chosen;
  const byName = new Map(features.map((each) => [each.feature.feature, each]));
  waiting = [];
  for (let after = 0; after !== null && after < features.length; ) {
    const part = await fetched(after);
    after = next = part.next;
    for (const feature of part.features) {
      const card = byName.get(feature.feature);
      if (card) card.feature = feature;
      else waiting.push(feature);
    }
  }
  features.forEach(drawFeature);
}

more.addEventListener("click", () => add(24));

async function start() {
  found = await fetched(0);
  document.getElementById("plots-wait").remove();
  tip.className = "plot-tip";
  tip.hidden = true;
  document.body.append(tip);
  const wide = [...(found.matters ? [importances()] : []), ...(found.votes?.drawing ? [votes()] : []), ...(found.keys ?? []).map(key)];
  const maps = (found.pairs ?? []).map(pairMap);
  for (const { frame, drawing } of [...wide, ...maps]) draw(frame, drawing);
  grid.append(...wide.map((each) => each.node));
  room.append(...(found.trees ? [grid, trees()] : [controls(), grid, more, ...(maps.length ? [together(maps)] : [])]));
  [waiting, next] = [found.features, found.next];
  if (few) await add(Math.max(1, ROW - wide.length));
  else await add(found.of <= FIRST + SPARE ? found.of : FIRST);
  room.setAttribute("aria-busy", "false");
}

function failed(error) {
  room.setAttribute("aria-busy", "false");
  room.replaceChildren(element("p", { class: "notice bad" }, `The pictures could not be drawn: ${error.message}.`));
}

document.addEventListener("dpserve:record", ({ detail }) => {
  record = detail;
  features.forEach(mark);
});
const near = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  near.disconnect();
  start().catch(failed);
}, { rootMargin: "400px" });
near.observe(room);
