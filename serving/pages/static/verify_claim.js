// Does epsilon follow from the answers that a certificate lists? The arithmetic of docs/privacy/prices.md, from the
// published decimals alone. In a browser's floating point, so a figure may be off by its last digit; `dpserve verify` holds
// them against each other exactly.

import { Refused, need } from "./verify_formats.js";

const NANO = 1_000_000_000n;
const LAST_DIGIT = 1e-6; // of a certificate's epsilon, which is rounded up to it
const GRID = [
  ...Array.from({ length: 89 }, (_, j) => 1 + (j + 1) / 10),
  ...Array.from({ length: 109 }, (_, j) => 10 + j / 2),
  ...Array.from({ length: 54 }, (_, j) => 64 * 1.08 ** (j + 1)),
];

// A plain decimal of at most 40 characters in units of 1e-9, rounded down.
export function nano(text) {
  need(typeof text === "string" && text.length <= 40 && /^(0|[1-9]\d*)(\.\d+)?$/.test(text), `decimal ${text}: must be plain`);
  const [whole, part = ""] = text.split(".");
  return BigInt(whole) * NANO + BigInt(part.slice(0, 9).padEnd(9, "0"));
}

// A plain decimal, whole: in units of 1e-40.
const exact = (text) => {
  nano(text);
  const [whole, part = ""] = text.split(".");
  return BigInt(whole + part.padEnd(40, "0"));
};

// ---- what one release costs: its one number, its pure price where it has one, its Renyi curve

const BOUNDED_RANGE = {
  parameter: "epsilon",
  pure: (event) => event.epsilon,
  renyi: (event, a) => {
    const e = Number(event.epsilon);
    const ratio = Math.expm1(-a * e) / Math.expm1(-e);
    const raw = Math.log(((a - 1) * ratio) / (a * (ratio * Math.exp(-e) - Math.exp(-a * e))));
    const t = Math.min(Math.max(raw, 0), e);
    const p = Math.expm1(e - t) / Math.expm1(e);
    const low = p < 1 ? Math.log1p(-p) + a * (t - e) : -Infinity;
    const high = p > 0 ? Math.log(p) + a * t : -Infinity;
    const top = Math.max(low, high);
    return Math.min((a * e * e) / 8, (top + Math.log(Math.exp(low - top) + Math.exp(high - top))) / (a - 1));
  },
};
const PURE_DP = {
  parameter: "epsilon",
  pure: (event) => event.epsilon,
  renyi: (event, a) => {
    const e = Number(event.epsilon);
    const curve = ((a - 1) * e + Math.log1p(Math.exp((1 - 2 * a) * e)) - Math.log1p(Math.exp(-e))) / (a - 1);
    return Math.min((a * e * e) / 2, e, curve);
  },
};
const GAUSSIAN = {
  parameter: "noise_multiplier",
  pure: () => null,
  renyi: (event, a) => a / (2 * Number(event.noise_multiplier) ** 2),
};
const EVENTS = { "bounded-range": BOUNDED_RANGE, "pure-dp": PURE_DP, gaussian: GAUSSIAN };

// ---- which price goes with which mechanism: the table of docs/privacy/prices.md

const BOTH = ["add-remove", "replace-one"];
const CHOICE = { norm: "range", events: ["bounded-range"], bounds: ["pure", "renyi", "adaptive"], follows: [], relations: BOTH, most: null };
const PURE = { ...CHOICE, events: ["pure-dp"] };
const CURVED = [
  [": how the loss curves", "pure-dp"],
  [": how near the minimum is", "gaussian"],
];
const SUM = { ...CHOICE, norm: "l2", events: ["gaussian"], bounds: ["renyi", "gaussian"] };
const EVERY = ["pure", "renyi", "gaussian", "adaptive"];
export const PAIRS = {
  exponential: CHOICE,
  "exponential-per-row": CHOICE,
  "permute-and-flip": PURE,
  "permute-and-flip-per-row": PURE,
  "discrete-laplace": { ...PURE, norm: "l1" },
  "discrete-gaussian": SUM,
  "objective-perturbation": { ...SUM, bounds: ["renyi"], follows: CURVED, relations: ["add-remove"], most: 1 },
  "one-of-k": { ...PURE, norm: "replacement", relations: ["replace-one"], most: 1 },
  "private-selection": { ...CHOICE, norm: "run", events: ["repeat-and-select"] },
  "vouched-program": { ...CHOICE, norm: "declared", events: ["pure-dp", "gaussian"], bounds: EVERY },
};

// Throws where a line is not the price of its mechanism, or lacks lines that must follow it.
function checkPairs({ claim, mechanisms }) {
  let due = [];
  for (const run of mechanisms) {
    const [pair, type] = [Object.hasOwn(PAIRS, run.mechanism) && PAIRS[run.mechanism], run.event.type];
    need(pair, `claim: no price of the mechanism ${run.mechanism} is known`);
    need(run.norm === pair.norm, `claim: the sensitivity of ${run.mechanism} is in ${pair.norm}`);
    need(pair.relations.includes(claim.relation), `claim: ${run.mechanism} is not proved for ${claim.relation} neighbours`);
    need(pair.most === null || claim.unit.contributions <= pair.most, `claim: ${run.mechanism} is not proved for several rows of a unit`);
    need(!EVERY.includes(claim.bound) || pair.bounds.includes(claim.bound), `claim: the ${claim.bound} bound is not proved for ${run.mechanism}`);
    if (due.length > 0) {
      const [purpose, mechanism, event] = due.shift();
      const stands = run.purpose === purpose && run.mechanism === mechanism && type === event && run.count === 1;
      need(stands, `claim: the line ${purpose} is missing`);
      continue;
    }
    need(pair.events.includes(type), `claim: ${type} is not the price of ${run.mechanism}`);
    need(pair.follows.length === 0 || run.count === 1, `claim: ${run.mechanism} stands once, before its further lines`);
    due = pair.follows.map(([words, event]) => [run.purpose + words, run.mechanism, event]);
  }
  need(due.length === 0, "claim: lines that must follow the last are missing");
}

const pureOf = ({ event }) => EVENTS[event.type].pure(event);
const rdpNano = ({ event }, order) => Math.ceil(EVENTS[event.type].renyi(event, order) * 1e9) + 1;
const composed = (runs, order) => runs.reduce((sum, run) => sum + run.count * rdpNano(run, order), 0);

export function epsilonAt(order, rdp, delta) {
  return rdp + Math.log1p(-1 / order) - (Math.log(delta) + Math.log(order)) / (order - 1);
}

const renyiEpsilon = (runs, delta) => Math.max(0, Math.min(...GRID.map((a) => epsilonAt(a, composed(runs, a) / 1e9, delta))));

// ---- Gaussian DP

export function gaussianEpsilon(runs, delta) {
  const squared = runs.reduce((sum, run) => {
    const left = Number(run.event.noise_multiplier) ** 2 - 4 / Number(run.sensitivity) ** 2;
    need(run.event.type === "gaussian" && left > 0, "claim: the Gaussian bound does not apply");
    return sum + run.count / left;
  }, 0);
  const mu = Math.sqrt(squared);
  let [low, high] = [0, 1];
  while (gaussianDelta(mu, high) > delta) [low, high] = [high, 2 * high];
  for (let turn = 0; turn < 60; turn += 1) {
    const middle = (low + high) / 2;
    [low, high] = gaussianDelta(mu, middle) > delta ? [middle, high] : [low, middle];
  }
  return gaussianDelta(mu, 0) <= delta ? 0 : high;
}

// Phi(-a) - e^epsilon Phi(-b): with the density taken out, nothing overflows.
function gaussianDelta(mu, epsilon) {
  const [a, b] = [epsilon / mu - mu / 2, epsilon / mu + mu / 2];
  return (Math.exp((-a * a) / 2) / Math.sqrt(2 * Math.PI)) * (mills(a) - mills(b));
}

// Phi(-x) / phi(x): by its power series near 0 and on the left, by Laplace's continued fraction to the right.
function mills(x) {
  if (x > 3) {
    let found = x;
    for (let k = 300; k > 0; k -= 1) found = x + k / found;
    return 1 / found;
  }
  const inverse = Math.sqrt(2 * Math.PI) * Math.exp((x * x) / 2); // 1 / phi(x)
  if (x < -3) return inverse - mills(-x);
  let [term, sum] = [x, x];
  for (let k = 1; k < 100; k += 1) {
    term *= (x * x) / (2 * k + 1);
    sum += term;
  }
  return inverse / 2 - sum;
}

// ---- the best adaptive adversary, by value iteration on a grid (releases of bounded range and of pure DP)

const FINENESS = [512, 384, 256, 192, 128, 96, 64, 56, 48, 40, 32, 24, 20, 16, 12, 10, 8, 6, 4, 3];
const MOST_WORK = 15_000_000;

export function adaptiveEpsilon(runs, delta) {
  const { step, size, moves } = board(runs, delta);
  const values = moves.reduce((found, move) => play(found, step, ...move), new Float64Array(size + 1));
  const allowed = delta * (1 - 1e-9);
  need(values[size] <= allowed, "claim: the adaptive bound does not apply");
  const first = values.findIndex((value) => value <= allowed);
  if (first === 0) return 0;
  const share = (values[first - 1] - allowed) / (values[first - 1] - values[first]);
  return (first - 1) * step + Math.log1p(share * Math.expm1(step)) + 1e-9;
}

function board(runs, delta) {
  const releases = runs.map((run) => {
    const [bounded, e, count] = [run.event.type === "bounded-range", Number(pureOf(run)), run.count];
    need(e > 0 && e <= 100, "claim: the adaptive bound does not apply");
    return { bounded, e, count, weight: count * (bounded ? e : 2 * e) ** 2 };
  });
  const sum = (of) => releases.reduce((total, each) => total + of(each), 0);
  const main = releases.reduce((best, each) => (each.weight > best.weight ? each : best));
  const typical = Math.sqrt(sum((each) => each.weight) / sum((each) => each.count));
  const [end, total] = [renyiEpsilon(runs, delta / 1000), sum((each) => each.count * each.e)];
  for (const fineness of FINENESS) {
    const step = short(main.e / Math.max(1, Math.round((fineness * main.e) / typical)));
    const moves = [...releases].reverse().map((each) => [each.bounded, Math.ceil(each.e / step), each.count]);
    const whole = moves.reduce((steps, [, each, count]) => steps + each * count, 0);
    const size = 1 + (1.1 * end < total ? Math.ceil(end / step) : whole);
    const work = size * moves.reduce((ops, [bounded, steps, count]) => ops + count * (1 + bounded * steps), 0);
    if (work <= MOST_WORK) return { step, size, moves };
  }
  throw new Refused("claim: the adaptive bound is too expensive to compute");
}

// Rounded up to 24 binary digits: its multiples are then exact.
function short(step) {
  const unit = 2 ** (Math.floor(Math.log2(step)) + 1 - 24);
  return Math.ceil(step / unit) * unit;
}

// `values` at 0, step, ...; to the left by symmetry, to the right the last one: an array from -steps on.
function widen(values, length, steps, step) {
  const last = values.length - 1;
  const wide = new Float64Array(length);
  for (let i = 0; i < length - steps; i += 1) wide[steps + i] = values[Math.min(i, last)];
  for (let i = 1; i <= steps; i += 1) {
    wide[steps - i] = -Math.expm1(-i * step) + Math.exp(-i * step) * values[Math.min(i, last)];
  }
  return wide;
}

function play(values, step, bounded, steps, count) {
  let found = values;
  for (let turn = 0; turn < count; turn += 1) found = bounded ? boundedMove(found, step, steps) : pureMove(found, step, steps);
  return found;
}

function pureMove(values, step, steps) {
  const wide = widen(values, values.length + 2 * steps, steps, step);
  const yes = 1 / (1 + Math.exp(-steps * step));
  return values.map((_, i) => Math.min(1, yes * wide[i] + Math.exp(-steps * step) * yes * wide[i + 2 * steps]));
}

function boundedMove(values, step, steps) {
  const size = values.length;
  const wide = widen(values, size + 3 * steps + 3, steps + 1, step);
  const bend = new Float64Array(size + steps + 1);
  for (let i = 0; i < bend.length; i += 1) {
    const outer = Math.exp(step) * (wide[i] - wide[i + steps]);
    bend[i] = Math.max(0, outer - (wide[i + 1] - wide[i + 1 + steps]));
  }
  const [out, last, whole] = [values.slice(), values.slice(), Math.expm1(steps * step)];
  for (let j = 1; j <= steps; j += 1) {
    const high = (Math.exp(j * step) * Math.expm1((steps - j) * step)) / whole;
    const low = Math.expm1(j * step) / whole;
    const rise = (Math.exp((j - 1) * step) * Math.tanh(step / 4)) / whole;
    const [near, far] = [steps + 1 - j, 2 * steps + 1 - j];
    for (let i = 0; i < size; i += 1) {
      const here = high * wide[near + i] + low * wide[far + i];
      const top = (last[i] > here ? last[i] : here) + rise * bend[near + i];
      last[i] = here;
      if (top > out[i]) out[i] = top;
    }
  }
  return out.map((value) => Math.min(1, value));
}

// ---- the claim as a whole

const BOUNDS = {
  pure: (claim, runs) => Number(pureSum(runs)) / 1e9,
  renyi: (claim, runs, delta) => epsilonAt(Number(claim.order), composed(runs, Number(claim.order)) / 1e9, delta),
  gaussian: (claim, runs, delta) => gaussianEpsilon(runs, delta),
  adaptive: (claim, runs, delta) => adaptiveEpsilon(runs, delta),
};
export const WORDS = {
  pure: "the sum of what each answer may cost",
  renyi: "Rényi accounting",
  gaussian: "Gaussian accounting",
  adaptive: "the best that an adaptive adversary could do",
};

const pureSum = (runs) => runs.reduce((sum, run) => sum + BigInt(run.count) * nano(pureOf(run)), 0n);

// What one who has the release has of one unit: its claim, and those of what it was made from and is of the same people,
// each release once; of rows kept aside and the others the larger sum. Throws where `together` says something else.
export function headline(predicate) {
  const { claim } = predicate;
  const rows = predicate.dataset ?? predicate.rows ?? {};
  const sources = [...new Map((rows.madeFrom ?? []).map((each) => [`${each.reservation} ${each.ledger}`, each])).values()];
  const same = sources.filter((each) => each.samePeople);
  need(Boolean(same.length) === Boolean(rows.together), "together: must stand where it was made from releases of the same people");
  if (!same.length) return claim;
  const claims = [{ ...claim, part: rows.part ?? "training" }, ...same];
  for (const figure of ["epsilon", "delta"]) {
    const sums = [true, false].map((aside) => claims.reduce((sum, each) => sum + ((each.part === "holdout") === aside ? exact(each[figure]) : 0n), 0n));
    const larger = sums[0] > sums[1] ? sums[0] : sums[1];
    need(exact(rows.together[figure]) === larger, `together: its ${figure} is not the sum of the claim and of what it was made from`);
  }
  return rows.together;
}

// Throws where epsilon does not follow. {epsilon, bound}, or {open: why} where a browser does not recompute it.
export function checkClaim(predicate) {
  const { claim, mechanisms } = predicate;
  need(Array.isArray(mechanisms) && mechanisms.length > 0, "claim: no answers are listed");
  headline(predicate);
  if (mechanisms.some((run) => run.event.type === "repeat-and-select")) return { open: "it paid for a private choice among runs" };
  mechanisms.forEach(checkRun);
  checkPairs(predicate);
  const [epsilon, delta] = [Number(claim.epsilon), Number(claim.delta)];
  need(nano(claim.epsilon) > 0n && delta >= 0 && delta < 1, "claim: epsilon must be above 0, delta from 0 to below 1");
  need((claim.variant === "pure") === (delta === 0), "claim: its variant does not go with its delta");
  checkSums(claim, mechanisms);
  const bound = claim.bound ?? (claim.order === null ? "pure" : "renyi");
  if (!Object.hasOwn(BOUNDS, bound)) return { open: `its bound "${bound}" is not known to this page` };
  const found = BOUNDS[bound](claim, mechanisms, delta);
  need(found <= epsilon + LAST_DIGIT, `claim: epsilon ${claim.epsilon} does not follow from the answers listed, ${found.toFixed(6)} does`);
  return { epsilon: found, bound };
}

function checkRun(run) {
  const { type } = run.event;
  need(Object.hasOwn(EVENTS, type), `claim: an answer of the kind ${type} is not known`);
  need(Number.isSafeInteger(run.count) && run.count > 0, "claim: a count must be a whole number from 1");
  need(nano(run.event[EVENTS[type].parameter]) > 0n, "claim: an answer must cost something");
  need(nano(run.sensitivity) > 0n, "claim: a sensitivity must be above 0");
}

// As every verifier has it: a figure may be more than what the answers come to, which promises less, and never less.
function checkSums(claim, runs) {
  const pure = runs.some((run) => pureOf(run) === null) ? null : pureSum(runs);
  const covered = claim.pure === null || (pure !== null && nano(claim.pure) >= pure);
  need(covered, "claim: the sum of what each answer may cost is another, and more");
  const count = runs.reduce((total, run) => total + run.count, 0);
  for (const line of claim.rdp) {
    const missing = composed(runs, Number(line.order)) - Number(nano(line.epsilon));
    need(missing <= 4 * count + 4, `claim: the Rényi figure at order ${line.order} does not follow from the answers listed`);
  }
}
