// The formats that a verifier reads, as pure functions over bytes: canonical JSON, DSSE envelopes, trust files, C2SP notes,
// checkpoints and inclusion proofs (RFC 6962). Strict: one spelling of everything, and every refusal is an Error that says
// what is wrong. Nothing in here trusts anything: a parsed text means nothing before its signature has been verified.

export const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const SIGNATURES = 4; // of an envelope, at most
const LIMITS = { envelope: 2 ** 20, statement: 2 ** 19, trust: 2 ** 20, entry: 65535, note: 262144 };
const utf8 = new TextEncoder();

export class Refused extends Error {}

export function need(holds, message) {
  if (!holds) throw new Refused(message);
}

// ---- bytes

export const encode = (text) => utf8.encode(text);

export function decode(bytes, what) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused(`${what}: must be text in UTF-8`);
  }
}

export function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export const same = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return btoa(text);
}

// RFC 4648 section 4 with padding, and no other spelling of the same bytes.
export function fromBase64(text, what) {
  let bytes = null;
  try {
    bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  } catch {
    throw new Refused(`${what}: must be standard base64`);
  }
  need(toBase64(bytes) === text, `${what}: must be canonical base64`);
  return bytes;
}

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

// ---- JSON without floats and without a key that stands twice

const STRINGS = /"(?:[^"\\]|\\.)*"(\s*:)?/g;

export function readJson(bytes, limit, what) {
  need(bytes.length <= limit, `${what}: must be at most ${limit} bytes`);
  const text = decode(bytes, what);
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refused(`${what}: is not JSON`);
  }
  const keys = [...text.matchAll(STRINGS)].filter((token) => token[1]).length;
  need(!/\d[.eE]|-0/.test(text.replace(STRINGS, '""')), `${what}: must not hold a float: a number is written as a text`);
  need(keys === countKeys(value, what, 0), `${what}: a key must not stand twice in one object`);
  return value;
}

function countKeys(value, what, depth) {
  need(depth <= 32, `${what}: nests too deep`);
  if (typeof value === "number") need(Number.isSafeInteger(value), `${what}: a number must be a whole one below 2^53`);
  if (typeof value === "string") need(!/[\ud800-\udfff]/u.test(value), `${what}: must not hold half a character`);
  if (typeof value !== "object" || value === null) return 0;
  const parts = Object.values(value);
  const inside = parts.reduce((count, part) => count + countKeys(part, what, depth + 1), 0);
  return inside + (Array.isArray(value) ? 0 : parts.length);
}

// As `readJson`, and the bytes must be the one canonical spelling: sorted keys, no blanks, ASCII, shortest escapes.
export function readCanonical(bytes, limit, what) {
  const value = readJson(bytes, limit, what);
  need(same(encode(spell(value)), bytes), `${what}: is not in its one canonical spelling`);
  return value;
}

export function spell(value) {
  if (Array.isArray(value)) return `[${value.map(spell).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.keys(value).sort().map((key) => `${spell(key)}:${spell(value[key])}`).join(",")}}`;
  }
  const text = JSON.stringify(value);
  return text.replace(/[\x7f-\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function exact(value, keys, what) {
  const found = typeof value === "object" && value !== null && !Array.isArray(value) ? Object.keys(value) : [];
  need(found.length === keys.length && keys.every((key) => found.includes(key)), `${what}: must have exactly ${keys.join(", ")}`);
  return value;
}

function text(value, what) {
  need(typeof value === "string", `${what}: must be a text`);
  return value;
}

function place(value, what) {
  need(Number.isSafeInteger(value) && value >= 0, `${what}: must be a whole number from 0`);
  return value;
}

const placeOrNull = (value, what) => (value === null ? null : place(value, what));

function list(value, what) {
  need(Array.isArray(value), `${what}: must be a list`);
  return value;
}

// ---- keys

const ED25519 = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const P256 = [0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
  0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00];

const PRIME = (1n << 255n) - 19n, SMALL_8 = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
const SMALL_ORDER = [0n, 1n, PRIME - 1n, SMALL_8, PRIME - SMALL_8];  // y of the points whose order divides 8

// Whether an Ed25519 key is spelled in the one way, and of no small order: by such a key signatures verify that nobody made.
function isSigners(raw) {
  const y = raw.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n) & ((1n << 255n) - 1n);
  return y < PRIME && !SMALL_ORDER.includes(y);
}

// A public key in PEM -> {kind, raw}: 32 bytes of Ed25519, 65 of a point on P-256.
export function readPem(pem, what) {
  const match = /^-----BEGIN PUBLIC KEY-----\n([A-Za-z0-9+/=\n]+)\n-----END PUBLIC KEY-----\n$/.exec(text(pem, what));
  need(match, `${what}: must be one public key in PEM`);
  const der = fromBase64(match[1].replaceAll("\n", ""), what);
  for (const [kind, prefix, size] of [["Ed25519", ED25519, 32], ["P-256", P256, 65]]) {
    const starts = prefix.every((byte, at) => der[at] === byte);
    if (!starts || der.length !== prefix.length + size) continue;
    const raw = der.subarray(prefix.length);
    need(kind !== "Ed25519" || isSigners(raw), `${what}: must be none that anybody can sign by`);
    return { kind, raw };
  }
  throw new Refused(`${what}: must be Ed25519, or ECDSA on P-256`);
}

// The fingerprint that `ssh-keygen -lf` prints; the name of a key everywhere.
export async function fingerprint(key) {
  const words = key.kind === "Ed25519" ? ["ssh-ed25519"] : ["ecdsa-sha2-nistp256", "nistp256"];
  const framed = [...words.map(encode), key.raw].map((part) => concat(bigEndian(part.length), part));
  return `SHA256:${toBase64(await sha256(concat(...framed))).replace(/=+$/, "")}`;
}

function bigEndian(size) {
  const out = new Uint8Array(4);
  new DataView(out.buffer).setUint32(0, size);
  return out;
}

export async function signedBy(key, signature, message) {
  if (key.kind === "Ed25519") {
    const imported = await crypto.subtle.importKey("raw", key.raw, { name: "Ed25519" }, false, ["verify"]);
    return crypto.subtle.verify({ name: "Ed25519" }, imported, signature, message);
  }
  const curve = { name: "ECDSA", namedCurve: "P-256" };
  const imported = await crypto.subtle.importKey("raw", key.raw, curve, false, ["verify"]);
  return crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, imported, fromDer(signature), message);
}

// An ECDSA signature in DER, as certificates have it -> r and s, 32 bytes each, as WebCrypto takes it.
function fromDer(der) {
  const whole = "signature: must be an ECDSA signature in DER";
  need(der[0] === 0x30 && der[1] === der.length - 2 && der.length < 0x80, whole);
  let at = 2;
  const numbers = [0, 1].map(() => {
    const size = der[at + 1];
    const found = der.subarray(at + 2, at + 2 + size);
    need(der[at] === 0x02 && size > 0 && found.length === size && found[0] < 0x80, whole);
    need(!(size > 1 && found[0] === 0 && found[1] < 0x80), whole);
    at += 2 + size;
    const short = found[0] === 0 ? found.subarray(1) : found;
    need(short.length <= 32, whole);
    return concat(new Uint8Array(32 - short.length), short);
  });
  need(at === der.length, whole);
  return concat(...numbers);
}

// ---- trust file: what a verifier pins

export async function readTrust(bytes) {
  const value = readJson(bytes, LIMITS.trust, "trust file");
  need(value?.format === "dpserve-trust/v2", "trust file: must be a trust.json of dpserve");
  exact(value, ["format", "origin", "issuers", "logs", "revoked"], "trust file");
  const origin = text(value.origin, "origin");
  need(/^[!-*,-~]{1,255}$/.test(origin), "origin: must be printable ASCII without blanks and plus");
  const logs = await Promise.all(list(value.logs, "logs").map((item) => readLogKey(item, origin)));
  const issuers = await Promise.all(list(value.issuers, "issuers").map(readIssuer));
  const revoked = list(value.revoked, "revoked").map((each) => place(each, "revoked"));
  need(issuers.length > 0 && logs.length > 0, "trust file: must hold an issuer key and a log key");
  const names = [...issuers, ...logs].map((each) => each.keyid);
  need(new Set(names).size === names.length, "trust file: every key must come once");
  return { origin, issuers, logs, revoked };
}

async function readIssuer(value) {
  const item = exact(value, ["keyid", "pem", "from_index", "until_index"], "issuer");
  const key = readPem(item.pem, "issuer key");
  const keyid = await fingerprint(key);
  need(keyid === item.keyid, "issuer key: its keyid is not its fingerprint");
  return { keyid, key, from: place(item.from_index, "from_index"), until: placeOrNull(item.until_index, "until_index") };
}

async function readLogKey(value, origin) {
  const item = exact(value, ["pem", "vkey", "from_size", "until_size"], "log");
  const key = readPem(item.pem, "log key");
  need(key.kind === "Ed25519", "log key: must be Ed25519");
  const vkey = `${origin}+${hex(await noteKeyId(origin, key))}+${toBase64(concat([1], key.raw))}`;
  need(vkey === item.vkey, "log key: its vkey is not that of its name and key");
  const [from, until] = [place(item.from_size, "from_size"), placeOrNull(item.until_size, "until_size")];
  return { keyid: await fingerprint(key), key, from, until };
}

export const holdsAt = (range, at) => BigInt(range.from) <= at && (range.until === null || at < BigInt(range.until));

// ---- DSSE

// Pre-authentication encoding: the bytes that are signed.
export function pae(type, payload) {
  const kind = encode(type);
  return concat(encode(`DSSEv1 ${kind.length} `), kind, encode(` ${payload.length} `), payload);
}

export function readEnvelope(bytes) {
  const top = exact(readJson(bytes, LIMITS.envelope, "envelope"), ["payload", "payloadType", "signatures"], "envelope");
  need(top.payloadType === PAYLOAD_TYPE, `payloadType: must be ${PAYLOAD_TYPE}`);
  const signatures = list(top.signatures, "signatures").map((value) => {
    const item = exact(value, ["keyid", "sig"], "signature");
    return { keyid: text(item.keyid, "keyid"), raw: fromBase64(text(item.sig, "sig"), "signature") };
  });
  need(signatures.length >= 1 && signatures.length <= SIGNATURES, `signatures: must be 1 to ${SIGNATURES}`);
  need(new Set(signatures.map((each) => each.keyid)).size === signatures.length, "signatures: a key must sign once");
  return { payload: fromBase64(text(top.payload, "payload"), "payload"), signatures };
}

export const readStatement = (payload) => readCanonical(payload, LIMITS.statement, "statement");
export const readEntry = (bytes) => readCanonical(bytes, LIMITS.entry, "ledger entry");

// ---- notes, checkpoints, proofs

const DASH = "\u2014 ";

// The first 4 bytes say which key signed a note: a hint, not a fingerprint to trust.
export async function noteKeyId(name, key) {
  return (await sha256(concat(encode(`${name}\n`), [1], key.raw))).subarray(0, 4);
}

export function readNote(note) {
  need(encode(note).length <= LIMITS.note, "checkpoint: is too long");
  need(!/[\x00-\x09\x0b-\x1f]/.test(note), "checkpoint: must not hold control characters");
  const cut = note.lastIndexOf("\n\n");
  need(cut >= 0 && note.endsWith("\n"), "checkpoint: must be text, an empty line and signature lines");
  const lines = note.slice(cut + 2, -1).split("\n");
  need(lines.length <= 64, "checkpoint: has too many signatures");
  return { text: note.slice(0, cut + 1), signatures: lines.map(noteSignature) };
}

function noteSignature(line) {
  const [name, encoded, ...more] = line.slice(DASH.length).split(" ");
  const formed = line.startsWith(DASH) && /^[^\s+\x00-\x1f]+$/u.test(name) && encoded && more.length === 0;
  need(formed, "checkpoint: a signature line must be em dash, name, base64");
  const raw = fromBase64(encoded, "checkpoint's signature");
  need(raw.length >= 5, "checkpoint's signature: is too short");
  return { name, id: raw.subarray(0, 4), signature: raw.subarray(4) };
}

export function readCheckpoint(note) {
  const { text: signed, signatures } = readNote(note);
  const lines = signed.slice(0, -1).split("\n");
  need(lines.length >= 3 && lines.every((line) => line), "checkpoint: must be three lines or more, none empty");
  const root = fromBase64(lines[2], "checkpoint's root");
  need(root.length === 32, "checkpoint's root: must be 32 bytes");
  return { origin: lines[0], size: wholeNumber(lines[1], "checkpoint's size"), root, signed, signatures };
}

function wholeNumber(digits, what) {
  need(/^(0|[1-9][0-9]{0,18})$/.test(digits) && BigInt(digits) < 2n ** 63n, `${what}: must be a decimal below 2^63`);
  return BigInt(digits);
}

// The `.tlog-proof` beside a model: where its entry stands, the hashes beside its path, the signed tree head.
export function readProof(bytes) {
  const whole = decode(bytes, "proof");
  const cut = whole.indexOf("\n\n");
  need(cut >= 0, "proof: must be lines, an empty line and a checkpoint");
  const lines = whole.slice(0, cut).split("\n");
  need(lines.shift() === "c2sp.org/tlog-proof@v1", "proof: its first line must be c2sp.org/tlog-proof@v1");
  need(lines[0]?.startsWith("extra "), "proof: must carry the entry's bytes in its extra line");
  const entry = fromBase64(lines.shift().slice(6), "proof's entry");
  need(entry.length > 0 && entry.length <= LIMITS.entry, "proof's entry: must be 1 to 65535 bytes");
  const index = /^index (.+)$/.exec(lines.shift() ?? "");
  need(index, "proof: must say the entry's index");
  const path = lines.map((line) => fromBase64(line, "proof's hash"));
  need(path.length <= 63 && path.every((each) => each.length === 32), "proof: must have at most 63 hashes of 32 bytes");
  return { index: wholeNumber(index[1], "index"), entry, path, checkpoint: readCheckpoint(whole.slice(cut + 2)) };
}

// ---- the Merkle tree of RFC 6962

export const leafHash = (entry) => sha256(concat([0], entry));
const nodeHash = (left, right) => sha256(concat([1], left, right));

// RFC 9162, 2.1.3.2: the root that the path leads to; refuses a path that is too long or too short.
export async function rootFrom(index, size, leaf, path) {
  need(index >= 0n && index < size, `index ${index}: must be below the tree's size ${size}`);
  let [fn, sn, found] = [index, size - 1n, leaf];
  for (const hash of path) {
    need(sn !== 0n, "inclusion proof: is too long");
    if (fn & 1n || fn === sn) {
      found = await nodeHash(hash, found);
      while (fn !== 0n && !(fn & 1n)) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      found = await nodeHash(found, hash);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  need(sn === 0n, "inclusion proof: is too short");
  return found;
}
