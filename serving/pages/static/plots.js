// The pictures of a model: fetched, and drawn with Vega-Lite, once they come near the screen. Under each a table of the same
// figures, for whoever does not see it.

import { amount, dateOf, featureSpec, heatSpec, hereRows, importanceSpec, plain, reach, shownBars, votesSpec } from "./plot_specs.js";

const model = document.getElementById("model").dataset;
const room = document.getElementById("plots");
const HEAVIEST = "few" in room.dataset ? 10 : 15; // votes drawn; the table has more
// Features drawn before more are asked for: one row of them, where there are many; else a few more rather than a button.
const FIRST = "few" in room.dataset ? 3 : matchMedia("(max-width: 46rem)").matches ? 4 : 12;
const SPARE = "few" in room.dataset ? 0 : 3;
const drawn = new Map(); // frame -> its Vega view
let [own, features, record, found] = [false, [], null, null];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function script(address) {
  return new Promise((resolve, reject) => {
    const made = element("script", { src: address });
    made.addEventListener("load", resolve);
    made.addEventListener("error", () => reject(new Error("the drawing library did not load")));
    document.head.append(made);
  });
}

async function fetched(after) {
  const answer = await fetch(`${model.at}/shapes?after=${after}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

function palette() {
  const names = { ink: "--ink", quiet: "--quiet", line: "--line", strong: "--line-strong", accent: "--accent", second: "--second", card: "--card" };
  return Object.fromEntries(Object.entries(names).map(([key, name]) => [key, dpserve.colour(name)]));
}

async function draw(frame, spec) {
  drawn.get(frame)?.finalize();
  const options = {
    mode: "vega-lite", actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "ours" },
  };
  frame.replaceChildren(element("div", { "aria-hidden": "true" })); // the frame is named, and the table has the figures
  const { view } = await vegaEmbed(frame.firstChild, spec, options);
  drawn.set(frame, view);
  return view;
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
  const heading = element("div", { class: "between" }, element("h3", {}, feature.feature),
    element("span", { class: "quiet small" }, aside(feature)), ...editing(feature.feature));
  return { feature, frame, node: element("figure", { class: "card plot" }, heading, frame, featureTable(feature)) };
}

// The way to the page that changes it, for whoever may.
function editing(name) {
  if (!("edits" in model)) return [];
  return [element("a", { class: "small", href: `${model.at}/edit?feature=${encodeURIComponent(name)}`, "aria-label": `Edit ${name}` }, "Edit")];
}

// What the picture leaves out.
function aside({ kind, shapes }) {
  const [{ bins }] = shapes;
  if (kind === "numeric" && found.labels.length === 1) return `not known: ${amount(bins.at(-1).adds)}`;
  if (shapes.length === 1 && found.labels.length > 1) return `for “${shapes[0].label}”`;
  const shown = shownBars(bins).length;
  return shown < bins.length && kind !== "numeric" ? `the ${shown} strongest of ${bins.length}` : "";
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

async function drawFeature({ feature, frame }) {
  const most = reach(own ? [feature] : features.map((each) => each.feature));
  const view = await draw(frame, featureSpec(feature, found, most, palette()));
  view.addEventListener("click", (_, item) => clicked(feature, item?.datum));
  if (record) mark({ feature, frame });
}

// A click on a place puts the what-if form there.
function clicked(feature, row) {
  if (!row?.label) return;
  const bins = feature.shapes[0].bins;
  const at = bins.findIndex((bin) => bin.label === row.label);
  document.dispatchEvent(new CustomEvent("dpserve:put", { detail: { feature: feature.feature, value: valueAt(feature, bins, at) } }));
}

function valueAt(feature, bins, at) {
  if (at === bins.length - 1) return "";
  if (feature.kind === "boolean") return String(at === 1);
  if (feature.kind === "categorical") return at === bins.length - 2 ? "?" : bins[at].label;
  const { low, high } = bins[at];
  if (feature.calendar) return dateOf(feature.calendar, low === null || high === null ? high ?? low + 1 : (low + high) / 2);
  return String(Number((low === null || high === null ? high ?? low + 1 : (low + high) / 2).toPrecision(4)));
}

function mark({ feature, frame }) {
  drawn.get(frame)?.data("here", hereRows(feature, record[feature.feature])).resize().run();
}

// ---- the section

function importances() {
  const rows = found.importances.slice(0, "few" in room.dataset ? 8 : 30);
  const frame = element("div", { class: "frame", role: "img", "aria-label": `How much each feature matters; most: ${rows.slice(0, 3).map((row) => row.feature).join(", ")}. The table below has all of it.` });
  const all = figures("Figures", ["Feature", found.unit], () => found.importances.map((row) => [row.feature, plain(row.size)]));
  return { spec: (colours) => importanceSpec(rows, found.unit, colours), frame, node: element("figure", { class: "card plot wide" }, element("h3", {}, "What matters most"), frame, all) };
}

function votes() {
  const rows = found.votes.slice(0, HEAVIEST);
  const several = found.labels.length > 1;
  const frame = element("div", { class: "frame", role: "img", "aria-label": "The heaviest votes. The table below has them all." });
  const words = several ? "Each adds its votes to its class where its test holds, and takes as many away where not." : `Each votes so much for “${found.labels[0]}” where its test holds, and as much against it where not.`;
  const all = figures("Figures", ["Where", "Votes", "For"], () => found.votes.map((row) => [row.test, row.votes, row.label]));
  const heading = element("h3", {}, found.votes.length > HEAVIEST ? `The ${HEAVIEST} heaviest votes` : "The votes");
  return { spec: (colours) => votesSpec(rows, found.labels, colours), frame, node: element("figure", { class: "card plot wide" }, heading, element("p", { class: "quiet small" }, words), frame, all) };
}

// What two features add together: a map of each pair, all on one scale.
function pairMap(pair) {
  const most = Math.max(1e-9, ...found.pairs.flatMap(({ cells }) => cells.map(({ adds }) => Math.abs(adds))));
  const strongest = pair.cells.reduce((a, b) => (Math.abs(b.adds) > Math.abs(a.adds) ? b : a));
  const label = `What ${pair.feature} add together to the ${found.unit}; most: ${amount(strongest.adds)} at ${strongest.row} and ${strongest.column}. The table below has all of it.`;
  const frame = element("div", { class: "frame", role: "img", "aria-label": label });
  const table = figures(`Figures of ${pair.feature}`, [...pair.features, "Adds", "Standard error", "Records (noisy)"], () => pair.cells.map(
    (cell) => [cell.row, cell.column, amount(cell.adds), cell.error === null ? "" : plain(cell.error), cell.count ?? ""]));
  const node = element("figure", { class: "card plot" }, element("div", { class: "between" }, element("h3", {}, pair.feature), ...editing(pair.feature)), frame, table);
  return { spec: (colours) => heatSpec(pair, found.unit, most, colours), frame, node };
}

function together(maps) {
  const words = "Beside what each adds by itself: blue adds, orange takes away, pale is within two standard errors of the noise.";
  const all = element("div", { class: "plot-grid" }, ...maps.map((each) => each.node));
  const heading = element("h3", { id: "together-h" }, "What two features add together"), says = element("p", { class: "quiet small" }, words);
  if (!("few" in room.dataset)) return element("section", { "aria-labelledby": "together-h" }, heading, says, all);
  const folded = element("details", { class: "card" }, element("summary", {}, heading), says, all);
  folded.addEventListener("toggle", () => drawWide(maps), { once: true }); // what is folded has no width to be drawn in
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
  box.addEventListener("change", () => {
    own = box.checked;
    features.forEach(drawFeature);
  });
  const label = element("label", { class: "check small" }, box, element("span", {}, "Each on a scale of its own"));
  const bands = found.features.some(({ shapes }) => shapes[0].bins.some((bin) => bin.error !== null));
  const words = `In ${found.unit}. ${bands ? "Bands: one and two standard errors of the privacy noise alone. " : ""}The dot is where the form below stands; a click on a place moves it there.`;
  return element("div", { class: "between" }, element("p", { class: "quiet small" }, words), label);
}

const grid = element("div", { class: "plot-grid" });
const more = element("button", { type: "button", class: "button second" }, "");
let waiting = [];
let next = null;

// So many more features; those that the server has not given yet are fetched when they are needed.
async function add(count) {
  if (waiting.length < count && next !== null) {
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
  await Promise.all(features.map(drawFeature)); // all of them: they share a scale
}

more.addEventListener("click", () => add(24));

const drawWide = (wide) => Promise.all(wide.map(({ frame, spec }) => draw(frame, spec(palette()))));

async function start() {
  found = await fetched(0);
  await script(model.vega);
  await script(model.vegalite);
  await script(model.embed);
  document.getElementById("plots-wait").remove();
  const wide = [...(found.importances.length ? [importances()] : []), ...(found.votes?.length ? [votes()] : [])];
  const pair = element("div", { class: wide.length > 1 ? "plot-pair" : "" }, ...wide.map((each) => each.node));
  const maps = (found.pairs ?? []).map(pairMap);
  room.append(pair, ...(found.trees ? [trees()] : [controls(), grid, more, ...(maps.length ? [together(maps)] : [])]));
  [waiting, next] = [found.features, found.next];
  if (!("few" in room.dataset)) wide.push(...maps);
  await Promise.all([drawWide(wide), add(found.of <= FIRST + SPARE ? found.of : FIRST)]);
  document.addEventListener("dpserve:theme", () => Promise.all([drawWide([...wide, ...maps.filter((each) => drawn.has(each.frame))]), ...features.map(drawFeature)]));
  room.setAttribute("aria-busy", "false");
}

document.addEventListener("dpserve:record", ({ detail }) => {
  record = detail;
  features.forEach(mark);
});
const near = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  near.disconnect();
  start().catch((error) => {
    room.setAttribute("aria-busy", "false");
    room.replaceChildren(element("p", { class: "notice bad" }, `The pictures could not be drawn: ${error.message}.`));
  });
}, { rootMargin: "400px" });
near.observe(room);
