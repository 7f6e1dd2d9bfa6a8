// Pictures of released numbers as Vega-Lite specifications: pure functions from what the server gives and a palette.

const BARS = 10; // categories drawn; the table has them all
const HEIGHT = 210;
const UNEVEN = 50; // widest to narrowest interval: beyond, each is drawn as wide as the others

export const amount = (value) => (Math.abs(value) < 5e-7 ? "0" : `${value > 0 ? "+" : "−"}${plain(Math.abs(value))}`);
export const plain = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });

function common(colours) {
  const axis = {
    labelColor: colours.quiet, titleColor: colours.quiet, tickColor: colours.line, domainColor: colours.line, gridColor: colours.line,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 150, titlePadding: 8,
  };
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container",
    background: "transparent",
    padding: { left: 2, top: 2, right: 10, bottom: 2 },
    autosize: { type: "fit", contains: "padding" },
    config: {
      aria: false, // the frame around it is named, and a table has every figure
      view: { stroke: null },
      font: "system-ui, sans-serif",
      axis,
      legend: { labelColor: colours.quiet, titleColor: colours.quiet, orient: "top", title: null, labelFontSize: 12 },
    },
  };
}

// ---- one feature

export function tooltipRows(feature, unit, several) {
  const rows = [{ field: "label", title: feature.feature }, { field: "says", title: unit }];
  if (several) rows.splice(1, 0, { field: "series", title: "class" });
  if (feature.shapes[0].bins.some((bin) => bin.error !== null)) rows.push({ field: "noise", title: "standard error" });
  if (feature.shapes[0].bins.some((bin) => bin.count !== null)) rows.push({ field: "records", title: "records (noisy)" });
  return rows;
}

function says(bin) {
  return {
    says: amount(bin.adds),
    noise: bin.error === null ? "" : plain(bin.error),
    records: bin.count === null ? "" : bin.count.toLocaleString("en"),
  };
}

export const reach = (features) => Math.max(1e-9, ...features.flatMap(({ shapes }) => shapes.flatMap(({ bins }) => bins.map((bin) => Math.abs(bin.adds) + 2 * (bin.error ?? 0)))));

const scaleTo = (most) => ({ domain: [-1.06 * most, 1.06 * most], nice: false });

// A class has one colour in every picture.
const byClass = (labels) => ({ scheme: labels.length > 10 ? "tableau20" : "tableau10", domain: labels });

// `most`: how far the scale reaches to either side.
export function featureSpec(feature, { unit, labels }, most, colours) {
  const numeric = feature.shapes[0].bins.some((bin) => bin.interval && (bin.low !== null || bin.high !== null));
  return (numeric ? curve : bars)(feature, unit, most, colours, labels);
}

// Where the intervals of a numeric feature are drawn: true to their width, or all alike where widths differ too much.
export function places(bins) {
  const inner = bins.filter((bin) => bin.interval);
  const edges = [...new Set(inner.flatMap((bin) => [bin.low, bin.high]).filter((end) => end !== null))].sort((a, b) => a - b);
  const gaps = edges.slice(1).map((edge, at) => edge - edges[at]);
  const alike = gaps.length > 0 && Math.max(...gaps) > UNEVEN * Math.min(...gaps);
  const span = edges.at(-1) - edges[0] || Math.abs(edges[0]) || 1;
  const at = (edge) => (alike ? edges.indexOf(edge) : edge);
  const [start, end] = alike ? [-1, edges.length] : [edges[0] - 0.05 * span, edges.at(-1) + 0.05 * span];
  const of = (bin) => [bin.low === null ? start : at(bin.low), bin.high === null ? end : at(bin.high)];
  return { edges, alike, start, end, of };
}

function curve(feature, unit, most, colours, labels) {
  const several = feature.shapes.length > 1;
  const { edges, alike, start, end, of } = places(feature.shapes.flatMap((shape) => shape.bins)); // their cuts may differ
  const rows = feature.shapes.flatMap(({ label, bins }) => bins.filter((bin) => bin.interval).map((bin) => {
    const [low, high] = of(bin);
    const error = bin.error ?? 0;
    const bands = { low1: bin.adds - error, high1: bin.adds + error, low2: bin.adds - 2 * error, high2: bin.adds + 2 * error };
    return { label: bin.label, series: label, low, high, adds: bin.adds, ...bands, ...says(bin) };
  }));
  const ends = feature.shapes.map(({ label }) => rows.filter((row) => row.series === label).at(-1));
  const steps = [...rows.map((row) => ({ series: row.series, x: row.low, y: row.adds })), ...ends.map((row) => ({ series: row.series, x: row.high, y: row.adds }))];
  const x = { type: "quantitative", scale: { domain: [start, end], nice: false, zero: false }, axis: xAxis(feature, edges, alike) };
  const y = { type: "quantitative", scale: scaleTo(most), axis: { title: null, grid: true, tickCount: 5 } };
  const colour = several ? { field: "series", type: "nominal", scale: byClass(labels) } : { value: colours.accent };
  const noisy = rows.some((row) => row.noise);
  const band = (low, high, opacity) => ({
    data: { values: rows },
    mark: { type: "rect", color: colours.accent, opacity },
    encoding: { x: { ...x, field: "low" }, x2: { field: "high" }, y: { ...y, field: low }, y2: { field: high } },
  });
  return {
    ...common(colours),
    height: HEIGHT,
    layer: [
      ...(noisy ? [band("low2", "high2", 0.14), band("low1", "high1", 0.22)] : []),
      { data: { values: [{}] }, mark: { type: "rule", color: colours.strong, strokeWidth: 1 }, encoding: { y: { datum: 0 } } },
      { data: { values: steps }, mark: { type: "line", interpolate: "step-after", strokeWidth: 2, clip: true }, encoding: { x: { ...x, field: "x" }, y: { ...y, field: "y" }, color: colour } },
      here(x, y, colours),
      {
        data: { values: rows },
        params: [{ name: "over", select: { type: "point", on: "pointerover", clear: "pointerout", fields: ["low"] } }],
        mark: { type: "rect", color: colours.ink, cursor: "pointer" },
        encoding: {
          x: { ...x, field: "low" }, x2: { field: "high" }, y: { datum: -1.06 * most, type: "quantitative" }, y2: { datum: 1.06 * most },
          opacity: { condition: { param: "over", empty: false, value: 0.09 }, value: 0 },
          tooltip: tooltipRows(feature, unit, several),
        },
      },
    ],
  };
}

const DAY = 86_400_000; // milliseconds

// A date or a time as its number, and back: days or seconds since 1970, seconds since midnight.
export function numberOf({ calendar }, value) {
  if (!calendar) return value;
  const moment = Date.parse(`${calendar === "time" ? "1970-01-01T" : ""}${value}${calendar === "date" ? "" : "Z"}`);
  return moment / (calendar === "date" ? DAY : 1000);
}

export function dateOf(calendar, number) {
  const iso = new Date(Math.floor(number) * (calendar === "date" ? DAY : 1000)).toISOString();
  return { date: iso.slice(0, 10), datetime: iso.slice(0, 19), time: iso.slice(11, 19) }[calendar];
}

// Ticks at cut points, as many as are readable.
function xAxis({ calendar }, edges, alike) {
  const form = { date: "%Y-%m-%d", datetime: "%Y-%m-%d %H:%M", time: "%H:%M" }[calendar];
  const dates = form ? { labelExpr: `utcFormat(datum.value * ${calendar === "date" ? DAY : 1000}, '${form}')` } : {};
  if (!alike) return { title: null, grid: false, tickCount: form ? 3 : 6, labelOverlap: true, ...dates };
  const every = Math.ceil(edges.length / 5);
  const shown = edges.map((_, at) => at).filter((at) => at % every === 0);
  const words = JSON.stringify(edges.map((edge) => calendar ? dateOf(calendar, edge) : edge.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 })));
  return { title: null, grid: false, values: shown, labelExpr: `${words}[datum.value]`, labelOverlap: true };
}

// Where the what-if form stands: empty until it says so.
function here(x, y, colours) {
  return {
    data: { name: "here", values: [] },
    mark: { type: "point", filled: true, size: 90, color: colours.second, stroke: colours.card, strokeWidth: 1.5, opacity: 1 },
    encoding: { x: { ...x, field: "x" }, y: { ...y, field: "y" } },
  };
}

export function shownBars(bins) {
  if (bins.length <= BARS) return bins;
  const least = bins.map((bin) => Math.abs(bin.adds)).sort((a, b) => b - a)[BARS - 1];
  return bins.filter((bin) => Math.abs(bin.adds) >= least).slice(0, BARS);
}

function bars(feature, unit, most, colours, labels) {
  const several = feature.shapes.length > 1;
  const rows = feature.shapes.flatMap(({ label, bins }) => shownBars(bins).map((bin) => {
    const error = bin.error ?? 0;
    return { label: bin.label, series: label, adds: bin.adds, low2: bin.adds - 2 * error, high2: bin.adds + 2 * error, ...says(bin) };
  }));
  const count = new Set(rows.map((row) => row.label)).size;
  const y = { field: "label", type: "nominal", sort: null, axis: { title: null, ticks: false, domain: false, labelLimit: 130 } };
  const x = { type: "quantitative", scale: scaleTo(most), axis: { title: null, grid: true, tickCount: 4, labelOverlap: true } };
  const offset = several ? { yOffset: { field: "series" }, color: { field: "series", type: "nominal", scale: byClass(labels) } } : {};
  const shade = several ? {} : { color: { condition: { test: "datum.adds < 0", value: colours.second }, value: colours.accent } };
  const noisy = rows.some((row) => row.noise);
  return {
    ...common(colours),
    height: Math.max(HEIGHT, count * (several ? 12 * feature.shapes.length : 0)),
    layer: [
      {
        data: { values: rows },
        params: [{ name: "over", select: { type: "point", on: "pointerover", clear: "pointerout", fields: ["label"] } }],
        mark: { type: "bar", cornerRadiusEnd: 2, height: several || count > 8 ? { band: 0.66 } : 16, cursor: "pointer" },
        encoding: {
          y, x: { ...x, field: "adds" }, ...offset, ...shade,
          opacity: { condition: { param: "over", empty: false, value: 1 }, value: 0.85 },
          tooltip: tooltipRows(feature, unit, several),
        },
      },
      ...(noisy ? [{ data: { values: rows }, mark: { type: "rule", color: colours.ink, strokeWidth: 1, opacity: 0.6 }, encoding: { y, x: { ...x, field: "low2" }, x2: { field: "high2" } } }] : []),
      { data: { values: [{}] }, mark: { type: "rule", color: colours.strong }, encoding: { x: { datum: 0 } } },
      {
        data: { name: "here", values: [] },
        mark: { type: "point", filled: true, size: 90, color: colours.ink, stroke: colours.card, strokeWidth: 1.5, opacity: 1 },
        encoding: { y, x: { ...x, field: "adds" } },
      },
    ],
  };
}

// What two features add together, as a map: strong where it is much, pale where it is within two errors of the noise.
export function heatSpec({ features, rows, columns, cells }, unit, most, colours) {
  const shade = (cell) => (0.06 + 0.94 * Math.min(1, Math.abs(cell.adds) / most)) * (Math.abs(cell.adds) > 2 * (cell.error ?? 0) ? 1 : 0.35);
  const axis = (title) => ({ title, ticks: false, domain: false, labelLimit: 90, labelOverlap: "greedy" });
  return {
    ...common(colours),
    height: Math.max(HEIGHT, 15 * rows.length),
    data: { values: cells.map((cell) => ({ ...cell, ...says(cell), shade: shade(cell) })) },
    mark: { type: "rect", stroke: colours.card, strokeWidth: 1 },
    encoding: {
      y: { field: "row", type: "nominal", sort: rows, axis: axis(features[0]) },
      x: { field: "column", type: "nominal", sort: columns, axis: { ...axis(features[1]), labelAngle: -40 } },
      color: { condition: { test: "datum.adds < 0", value: colours.second }, value: colours.accent },
      opacity: { field: "shade", type: "quantitative", scale: null, legend: null },
      tooltip: [
        { field: "row", title: features[0] }, { field: "column", title: features[1] }, { field: "says", title: unit },
        { field: "noise", title: "standard error" }, { field: "records", title: "records (noisy)" },
      ],
    },
  };
}

// The bin that a value falls into; missing is the last, of categories "other" the one before it.
export function binOf(feature, bins, value) {
  if (value === null || value === undefined) return bins.at(-1);
  if (feature.kind === "numeric") {
    value = numberOf(feature, value);
    return bins.find((bin) => bin.interval && (bin.low === null || value > bin.low) && (bin.high === null || value <= bin.high));
  }
  if (feature.kind === "boolean") return bins[value ? 1 : 0];
  return bins.slice(0, -2).find((bin) => bin.label === String(value)) ?? bins.at(-2);
}

// Where the form's dot stands in the picture of a feature, as rows of the data "here".
export function hereRows(feature, value) {
  return feature.shapes.flatMap(({ bins }) => {
    const bin = binOf(feature, bins, value);
    if (!bin) return [];
    const numeric = bins.some((each) => each.interval && (each.low !== null || each.high !== null));
    if (!numeric) return [{ label: bin.label, adds: bin.adds }];
    if (!bin.interval) return [];
    const { alike, start, end, of } = places(feature.shapes.flatMap((shape) => shape.bins));
    const [low, high] = of(bin);
    const x = alike ? (low + high) / 2 : Math.min(end, Math.max(start, numberOf(feature, value)));
    return [{ x, y: bin.adds }];
  });
}

// ---- all features, and votes

const lines = (count) => 20 * count + 45; // with the axis below them

export function importanceSpec(rows, unit, colours) {
  return {
    ...common(colours),
    height: lines(rows.length),
    data: { values: rows.map((row) => ({ ...row, says: plain(row.size) })) },
    mark: { type: "bar", color: colours.accent, cornerRadiusEnd: 2, height: { band: 0.62 } },
    encoding: {
      y: { field: "feature", type: "nominal", sort: null, axis: { title: null, ticks: false, domain: false } },
      x: { field: "size", type: "quantitative", axis: { title: unit, grid: true, tickCount: 5 } },
      tooltip: [{ field: "feature", title: "feature" }, { field: "says", title: unit }],
    },
  };
}

export function votesSpec(rows, labels, colours) {
  const several = labels.length > 1;
  const colour = several
    ? { field: "label", type: "nominal", scale: byClass(labels) }
    : { condition: { test: "datum.votes < 0", value: colours.second }, value: colours.accent };
  return {
    ...common(colours),
    height: lines(rows.length) + (several ? 28 : 0),
    data: { values: rows },
    mark: { type: "bar", cornerRadiusEnd: 2, height: { band: 0.62 } },
    encoding: {
      y: { field: "test", type: "nominal", sort: null, axis: { title: null, ticks: false, domain: false, labelLimit: 190 } },
      x: { field: "votes", type: "quantitative", axis: { title: "votes", grid: true, tickCount: 5 } },
      color: colour,
      tooltip: [{ field: "test", title: "where" }, { field: "votes", title: "votes" }, { field: "label", title: "for" }],
    },
  };
}
