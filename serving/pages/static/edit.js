// A curve of a model, changed: every change is tried at the server, which says what each bin would add; the picture has both.

const room = document.getElementById("edit");
const find = (id) => document.getElementById(id);
const at = `/v1/models/${encodeURIComponent(room.dataset.model).replace("%40", "@")}`;
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260, LEFT = 52, BELOW = 34;

let curve = JSON.parse(room.dataset.curve); // of the feature that is shown, as the model has it
const entry = curve.entry;
let steps = []; // edits as the server takes them
let changed = []; // what they come to, as the server said
let turn = 0;

const shown = (value) => Number(value.toPrecision(4));
const words = (value) => `${value < 0 ? "−" : "+"}${Math.abs(shown(value))}`;

function made(tag, attributes = {}, ...children) {
  const found = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

async function asked(address, body) {
  const more = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(address, more);
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw Object.assign(new Error(said?.error?.message ?? `The server answered ${answer.status}.`), said?.error?.details);
  return said;
}

// ---- what is shown

const here = (row) => row.feature === curve.feature && row.class === curve.class;
const whose = () => (curve.classes ? { feature: curve.feature, class: curve.class } : { feature: curve.feature });
const before = () => curve.bins.map((bin) => bin.adds);
function after() {
  const found = before();
  for (const row of changed) if (here(row)) found[row.bin] = row.after;
  return found;
}
const ticked = () => [...room.querySelectorAll("tbody input:checked")].map((box) => Number(box.value));

// Codes as runs of neighbours.
function runs(codes) {
  const found = [];
  for (const code of codes) {
    if (found.length && found.at(-1)[1] === code - 1) found.at(-1)[1] = code; else found.push([code, code]);
  }
  return found;
}

function chosen() {
  const some = ticked();
  if (some.length) return runs(some);
  const ends = [Number(find("from").value), Number(find("to").value)].sort((a, b) => a - b);
  return [ends];
}

function show() {
  const [was, now] = [before(), after()];
  draw(now);
  room.querySelectorAll("tbody tr").forEach((row, code) => {
    const box = row.querySelector("input[type=number]");
    if (document.activeElement !== box || Number(box.value) !== shown(now[code])) box.value = shown(now[code]);
    row.classList.toggle("moved", now[code] !== was[code]);
  });
  room.querySelector(".changes").replaceChildren(...steps.map((step) => made("li", {}, told(step))));
  room.querySelector(".none").hidden = steps.length > 0;
  for (const id of ["undo", "again"]) find(id).disabled = !steps.length;
  const button = room.querySelector(".make button");
  if (button) button.disabled = !changed.length;
}

const known = new Map(); // feature -> its bins in words
function told({ feature, class: label, ...edit }) {
  const [[kind, said]] = Object.entries(edit), bins = known.get(feature);
  const part = said.bins.map(([first, last]) => first === 0 && last === bins.length - 1 ? "all" : first === last ? bins[first] : `${bins[first]} to ${bins[last]}`).join("; ");
  const what = {
    set: () => `add ${said.to}`, smooth: () => `smoothed over ${said.window} bins`, clip: () => `between ${said.low} and ${said.high}`,
    zero: () => "add nothing", monotone: () => (said.direction === "increasing" ? "never fall" : "never rise"),
  }[kind]();
  return `${label === undefined ? "" : `${label}: `}${feature}, ${part}: ${what}`;
}

function rows() {
  known.set(curve.feature, curve.bins.map((bin) => bin.values));
  const body = curve.bins.map((bin) => {
    const more = [bin.error === null ? "" : `± ${shown(bin.error)}`, bin.count === null ? "" : `${bin.count.toLocaleString("en")} records (noisy)`].filter(Boolean).join(", ");
    const box = made("input", { type: "number", step: "any", inputmode: "decimal", autocomplete: "off", "aria-label": `${bin.values} adds` });
    box.addEventListener("change", () => typed(bin.bin, box));
    const tick = made("input", { type: "checkbox", value: bin.bin, "aria-label": `Tick ${bin.values}`, autocomplete: "off" });
    tick.addEventListener("change", () => draw(after()));
    return made("tr", {}, made("td", {}, tick), made("th", { scope: "row" }, bin.values, made("small", {}, more)),
      made("td", { class: "number" }, words(bin.adds)), made("td", { class: "number" }, box));
  });
  room.querySelector("tbody").replaceChildren(...body);
  const last = curve.ordered ? curve.ordered - 1 : curve.bins.length - 1;
  for (const [id, code] of [["from", 0], ["to", last]]) {
    find(id).replaceChildren(...curve.bins.map((bin) => made("option", { value: bin.bin }, bin.values)));
    find(id).value = code;
  }
  for (const option of find("act").options) option.disabled = option.hidden = option.className === "ordered" && curve.ordered < 2;
  if (find("act").selectedOptions[0].disabled) find("act").value = "set";
  fields();
}

function fields() {
  for (const field of room.querySelectorAll("[data-for]")) field.hidden = field.dataset.for !== find("act").value;
}

// ---- the picture

function draw(now, held = null) {
  const frame = room.querySelector(".picture");
  room.classList.toggle("mapped", curve.kind === "pair");
  if (curve.kind === "pair") return frame.replaceChildren(maps(now));
  const was = before(), width = Math.max(280, frame.clientWidth);
  const errors = curve.bins.map((bin) => 2 * (bin.error ?? 0));
  const all = [0, ...now, ...was.map((value, code) => value + errors[code]), ...was.map((value, code) => value - errors[code])];
  const [low, high] = [Math.min(...all), Math.max(...all)], margin = Math.max(1e-9, 0.12 * (high - low)) || 1;
  const scale = held?.scale ?? { low: low - margin, high: high + margin };
  const column = (width - LEFT) / curve.bins.length;
  const y = (value) => HEIGHT * (scale.high - value) / (scale.high - scale.low);
  const x = (code) => LEFT + code * column;
  // A line along the bins: joined where they stand in an order.
  const path = (values) => values.map((value, code) => `${code && code < curve.ordered ? "L" : "M"}${x(code) + (code < curve.ordered ? 0 : 2)} ${y(value)}H${x(code + 1) - (code < curve.ordered ? 0 : 2)}`).join("");
  const ticks = marks(scale.low, scale.high).flatMap((value) => [
    made("svg:line", { class: value ? "grid" : "zero", x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
    made("svg:text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(shown(value)).replace("-", "−"))]);
  const bands = was.map((value, code) => made("svg:rect", { class: "band", x: x(code), width: column, y: y(value + errors[code]), height: y(value - errors[code]) - y(value + errors[code]) }));
  const some = new Set(ticked());
  const tints = [...some].map((code) => made("svg:rect", { class: "chosen", x: x(code), width: column, y: 0, height: HEIGHT }));
  const every = Math.ceil(curve.bins.length * 78 / (width - LEFT));
  // Of numbers the cut points below their place, of the rest the names.
  const names = curve.bins.filter((bin) => bin.bin % every === 0).map(({ bin, values }) => {
    const cut = bin < curve.ordered - 1 ? values.split("..")[1] : bin < curve.ordered ? "" : values;
    return made("svg:text", { x: x(bin) + column * (bin < curve.ordered ? 1 : 0.5), y: HEIGHT + 20, "text-anchor": "middle" }, short(cut, Math.max(6, column * every / 7)));
  });
  const handles = now.map((value, code) => handle(code, scale, {
    class: held?.codes.includes(code) ? "handle held" : "handle", x: x(code), width: column, y: y(value) - 12, height: 24 }));
  const told = held ? [made("svg:text", { class: "told", x: Math.min(width - 30, x(held.codes[0]) + column / 2), y: Math.max(12, y(held.value) - 16), "text-anchor": "middle" }, words(held.value))] : [];
  const label = `What ${curve.feature} adds${curve.classes ? ` for ${curve.class}` : ""}, before and after; ${changed.filter(here).length} of ${curve.bins.length} bins changed. The table below has all of it.`;
  const picture = made("svg:svg", { viewBox: `0 0 ${width} ${HEIGHT + BELOW}`, height: HEIGHT + BELOW, role: "img", "aria-label": label },
    ...tints, ...ticks, ...bands, made("svg:path", { class: "was", d: path(was) }), made("svg:path", { class: "now", d: path(now) }), ...names, ...told, ...handles);
  frame.replaceChildren(picture);
}

const short = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);

function marks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, count) => Number(((first + count) * step).toPrecision(12)) || 0);
}

function handle(code, scale, place) {
  const found = made("svg:rect", place, made("svg:title", {}, curve.bins[code].values));
  found.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    const top = found.ownerSVGElement.getBoundingClientRect().top + scrollY;
    const codes = ticked().includes(code) ? ticked() : [code];
    let value = null;
    const move = (event) => {
      value = shown(scale.high - (event.pageY - top) / HEIGHT * (scale.high - scale.low));
      draw(after().map((each, at) => (codes.includes(at) ? value : each)), { scale, codes, value });
    };
    const end = ({ type }) => {
      removeEventListener("pointermove", move);
      for (const each of ["pointerup", "pointercancel"]) removeEventListener(each, end);
      if (value === null || type === "pointercancel") draw(after()); else put({ ...whose(), set: { bins: runs(codes), to: value } });
    };
    addEventListener("pointermove", move);
    for (const each of ["pointerup", "pointercancel"]) addEventListener(each, end);
  });
  return found;
}

// Of a pair: both maps, a row for each group of the first feature.
function maps(now) {
  const was = before(), most = Math.max(1e-9, ...was.map(Math.abs), ...now.map(Math.abs)), across = curve.columns.length;
  const map = (title, values) => {
    const cells = values.map((value, code) => {
      const cell = made("svg:rect", {
        class: `cell ${value < 0 ? "less" : "more"}${values === now && value !== was[code] ? " moved" : ""}`, "fill-opacity": 0.06 + 0.94 * Math.abs(value) / most,
        x: code % across * 20, y: Math.floor(code / across) * 20, width: 20, height: 20,
      }, made("svg:title", {}, `${curve.bins[code].values}: ${words(value)}`));
      cell.addEventListener("click", () => {
        const box = room.querySelectorAll("tbody input[type=number]")[code];
        box.focus();
        box.select();
      });
      return cell;
    });
    const label = `${title}: a map of what ${curve.feature} add together. The table below has all of it.`;
    return made("figure", {}, made("figcaption", {}, title), made("svg:svg", { viewBox: `0 0 ${across * 20} ${curve.rows.length * 20}`, role: "img", "aria-label": label }, ...cells));
  };
  return made("div", { class: "maps" }, map("Before", was), map("After", now));
}

// ---- changes

function problem(text) {
  const notice = room.querySelector(".problem");
  notice.hidden = !text;
  notice.textContent = text;
}

// Try these steps; they hold once the server says what they come to.
async function attempt(tried) {
  const mine = ++turn;
  room.setAttribute("aria-busy", "true");
  try {
    const found = tried.length ? (await asked(`${at}/edits`, { edits: tried, entry, dry_run: true })).changed : [];
    if (mine === turn) { [steps, changed] = [tried, found]; problem(""); }
  } catch (error) {
    if (mine === turn) problem(error.message);
  } finally {
    if (mine === turn) { room.setAttribute("aria-busy", "false"); show(); }
  }
}

// One more; a value set anew for the same bins takes the place of the last.
function put(step) {
  const last = steps.at(-1);
  const same = last?.set && step.set && last.feature === step.feature && last.class === step.class && JSON.stringify(last.set.bins) === JSON.stringify(step.set.bins);
  return attempt([...(same ? steps.slice(0, -1) : steps), step]);
}

function typed(code, box) {
  const value = box.valueAsNumber;
  if (!Number.isFinite(value)) { problem("A bin adds a number; write 0 for nothing."); return show(); }
  if (value !== shown(after()[code])) put({ ...whose(), set: { bins: [[code, code]], to: value } });
}

find("apply").addEventListener("click", () => {
  const act = find("act").value, bins = chosen();
  const number = (id) => find(id).valueAsNumber;
  const step = {
    set: () => ({ set: { bins, to: number("value") } }), clip: () => ({ clip: { bins, low: number("low"), high: number("high") } }),
    smooth: () => ({ smooth: { bins, window: number("window") } }), zero: () => ({ zero: { bins } }),
  }[act]?.() ?? { monotone: { bins, direction: act } };
  const empty = room.querySelectorAll(`[data-for="${act}"] input`);
  const wrong = [...empty].find((box) => !Number.isFinite(box.valueAsNumber));
  if (wrong) { problem("Say a number first."); return wrong.focus(); }
  put({ ...whose(), ...step });
});
find("act").addEventListener("change", fields);
find("undo").addEventListener("click", () => attempt(steps.slice(0, -1)));
find("again").addEventListener("click", () => attempt([]));

async function turned() {
  const query = new URLSearchParams({ feature: find("term").value });
  if (curve.classes) query.set("class", find("class").value);
  try {
    curve = await asked(`${at}/curve?${query}`);
    problem("");
  } catch (error) {
    find("term").value = curve.feature;
    if (curve.classes) find("class").value = curve.class;
    return problem(error.message);
  }
  history.replaceState(null, "", `?${query}`);
  room.querySelector(".unit").textContent = curve.unit;
  rows();
  show();
}
for (const id of ["term", "class"]) find(id)?.addEventListener("change", turned);

room.querySelector(".make")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button"), reason = find("reason"), done = room.querySelector(".made");
  const valid = reason.value.trim() !== "";
  reason.setAttribute("aria-invalid", String(!valid));
  if (!valid) { problem("Say why: it stays in the model."); return reason.focus(); }
  button.disabled = true;
  const link = (model) => made("a", { href: `/ui/models/${model}` }, model);
  try {
    const { model } = await asked(`${at}/edits`, { edits: steps, reason: reason.value.trim(), entry });
    problem("");
    done.replaceChildren(made("p", { class: "notice good" }, "Made: ", link(model), ", a candidate. It answers only who names it, until somebody promotes it."));
    done.querySelector("a").focus();
  } catch (error) {
    problem(error.message);
    if (error.model) done.replaceChildren(made("p", { class: "notice" }, link(error.model)));
    button.disabled = false;
  }
});

rows();
show();
new ResizeObserver(() => draw(after())).observe(room);
