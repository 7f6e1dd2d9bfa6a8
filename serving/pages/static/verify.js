// Verifying a model in the browser: is this file the one that the certificate speaks of, is the certificate signed, does
// its epsilon follow, does it stand in the public ledger? Four files in, the answer of every step out. WebCrypto does the
// SHA-256 and the signatures; all else is in the files beside this one. No library, and nothing is sent anywhere.
//
//   const { ok, steps } = await verifyModel({ model, certificate, proof, trust });   // each a Uint8Array
//
// A step is {id, title, state, says}: state "good", "bad", or "open" where this page cannot tell. `ok` is true only where
// no step is bad, and nothing is open but the arithmetic of a claim that a browser does not recompute.

import {
  Refused, encode, hex, holdsAt, leafHash, need, noteKeyId, pae, PAYLOAD_TYPE, readEntry, readEnvelope, readProof,
  readStatement, readTrust, rootFrom, same, sha256, signedBy,
} from "./verify_formats.js";
import { checkClaim, headline, WORDS } from "./verify_claim.js";

const STATEMENT = "https://in-toto.io/Statement/v1";
const PREDICATE = "https://dpserve/privacy-certificate/v1";

const WORTH = "https://dpserve/model-worth/v1";
const PROFILE = "https://dpserve/dataset-profile/v1";

export const STEPS = [
  ["keys", "The pinned keys can be read"],
  ["form", "Certificate and proof are of their one strict form"],
  ["signature", "The certificate is signed by a pinned issuer key"],
  ["model", "It speaks of exactly this model file"],
  ["claim", "Epsilon follows from the listed answers"],
  ["checkpoint", "The ledger’s size and root are signed by its key"],
  ["inclusion", "The certificate’s entry stands in that ledger"],
  ["entry", "The entry names this certificate, this model and its reservation"],
  ["standing", "Nothing of it was revoked"],
];

// Of a statement of what a model is worth, or of how the rows of a dataset are spread; a model's file need not be at hand.
export const STATEMENT_STEPS = [
  ["keys", "The pinned keys can be read"],
  ["statementForm", "Statement and proof are of their one strict form"],
  ["signature", "The statement is signed by a pinned issuer key"],
  ["claim", "Epsilon follows from the listed answers"],
  ["checkpoint", "The ledger’s size and root are signed by its key"],
  ["inclusion", "The statement’s entry stands in that ledger"],
  ["statementEntry", "The entry names this statement and its reservation"],
  ["statementStanding", "The model that it speaks of was not revoked"],
];

// Why this browser cannot verify, or "" where it can.
export async function unable() {
  if (!globalThis.crypto?.subtle) {
    return "This page was not opened in a secure context (https, or this machine's own address), so the browser withholds "
      + "the cryptography that is needed. Nothing was verified.";
  }
  try {
    await crypto.subtle.importKey("raw", new Uint8Array(32).fill(1), { name: "Ed25519" }, false, ["verify"]);
    return "";
  } catch {
    return "This browser does not know Ed25519 signatures. Nothing was verified.";
  }
}

export const verifyModel = (files, told = () => {}) => inTurn(STEPS, files, told);

// { certificate: the statement's envelope, proof, trust }: who measured, and what they signed. That its figures follow
// from its counts is checked by `dpserve verify`.
export const verifyStatement = (files, told = () => {}) => inTurn(STATEMENT_STEPS, files, told);

async function inTurn(asked, files, told) {
  const found = {};
  const steps = [];
  for (const [id, title] of asked) {
    const step = { id, title, ...(await outcome(CHECKS[id], files, found)) };
    steps.push(step);
    told(step);
  }
  const ok = steps.every(({ id, state }) => state === "good" || (state === "open" && id === "claim"));
  return { ok, steps, statement: ok ? found.statement : null };
}

async function outcome(check, files, found) {
  try {
    const says = await check(files, found);
    return typeof says === "string" ? { state: "good", says } : { state: "open", says: says.open };
  } catch (error) {
    if (error instanceof Missing) return { state: "bad", says: "Could not be checked, because a step before it failed." };
    const says = error instanceof Refused ? error.message : "the file is not what it should be";
    return { state: "bad", says: `${says.charAt(0).toUpperCase()}${says.slice(1)}.` };
  }
}

class Missing extends Error {}

// What an earlier step found; without it this one cannot be good.
function earlier(found, ...names) {
  if (names.some((name) => found[name] === undefined)) throw new Missing();
  return names.map((name) => found[name]);
}

const CHECKS = {
  async keys({ trust }, found) {
    found.trust = await readTrust(trust);
    const { issuers, logs, origin } = found.trust;
    return `Ledger ${origin}; ${count(issuers.length, "issuer key")}, ${count(logs.length, "log key")}.`;
  },

  async form({ certificate, proof }, found) {
    const [envelope, parsed] = [readEnvelope(certificate), readProof(proof)];
    const statement = readStatement(envelope.payload);
    checkStatement(statement);
    Object.assign(found, { envelope, proof: parsed, statement });
    return `An in-toto statement in a DSSE envelope; entry ${parsed.index} of the ledger.`;
  },

  async statementForm({ certificate, proof }, found) {
    const [envelope, parsed] = [readEnvelope(certificate), readProof(proof)];
    const statement = readStatement(envelope.payload);
    const { predicateType, predicate, subject } = statement ?? {};
    need(statement?._type === STATEMENT && [WORTH, PROFILE].includes(predicateType), "statement: must be of worth, or a profile");
    need(Array.isArray(subject) && subject.length === 1 && typeof subject[0]?.name === "string", "statement: must name its subject");
    need(/^[0-9a-f]{64}$/.test(subject[0]?.digest?.sha256), "statement: must hold its subject's sha256");
    const whole = ["claim", "ledger", "rows"].every((part) => typeof predicate?.[part] === "object" && predicate[part]);
    need(whole && Number.isSafeInteger(predicate.ledger.reservation), "statement: its predicate lacks a part");
    need(predicateType === PROFILE || Number.isSafeInteger(predicate.model?.certificate), "statement: must name the model's certificate");
    Object.assign(found, { envelope, proof: parsed, statement });
    return `An in-toto statement in a DSSE envelope; entry ${parsed.index} of the ledger.`;
  },

  async signature(_, found) {
    const [trust, envelope, proof] = earlier(found, "trust", "envelope", "proof");
    const message = pae(PAYLOAD_TYPE, envelope.payload);
    for (const { keyid, raw } of envelope.signatures) {
      const issuer = trust.issuers.find((each) => each.keyid === keyid && holdsAt(each, proof.index));
      need(issuer, `no pinned issuer key ${keyid} may speak for entry ${proof.index}`);
      need(await signedBy(issuer.key, raw, message), `the signature by ${keyid} does not verify`);
    }
    found.signed = true;
    return `Signed by ${envelope.signatures.map((each) => each.keyid).join(" and ")}.`;
  },

  async model({ model }, found) {
    const [statement] = earlier(found, "statement");
    const [stated, own] = [statement.subject[0].digest.sha256, hex(await sha256(model))];
    need(own === stated, `the file's sha256 is ${own}, the certificate speaks of ${stated}`);
    return `sha256 ${own}, ${model.length.toLocaleString("en")} bytes.`;
  },

  async claim(_, found) {
    const [statement] = earlier(found, "statement");
    const { claim, mechanisms } = statement.predicate;
    const result = checkClaim(statement.predicate);
    if (result.open) return { open: `Not recomputed here: ${result.open}. dpserve verify does it.` };
    const answers = count(mechanisms.reduce((sum, run) => sum + run.count, 0), "noisy answer");
    const given = `${answers} give epsilon ${claim.epsilon} at delta ${claim.delta}, by ${WORDS[result.bound]}.`;
    const whole = headline(statement.predicate);
    return whole === claim ? given : `${given} With what it was made from: epsilon ${whole.epsilon} at delta ${whole.delta}.`;
  },

  async checkpoint(_, found) {
    const [trust, proof] = earlier(found, "trust", "proof");
    const { checkpoint } = proof;
    need(checkpoint.origin === trust.origin, `the checkpoint is of ${checkpoint.origin}, the pinned ledger is ${trust.origin}`);
    const log = trust.logs.findLast((each) => holdsAt(each, checkpoint.size));
    need(log, `no pinned log key speaks for a ledger of ${checkpoint.size} entries`);
    await checkNote(checkpoint, trust.origin, log.key);
    found.checkpoint = checkpoint;
    return `${checkpoint.size} entries, signed by ${log.keyid}.`;
  },

  async inclusion(_, found) {
    const [proof, checkpoint] = earlier(found, "proof", "checkpoint");
    const root = await rootFrom(proof.index, checkpoint.size, await leafHash(proof.entry), proof.path);
    need(same(root, checkpoint.root), `entry ${proof.index} is not in the ledger of this root`);
    found.entry = readEntry(proof.entry);
    return `Entry ${proof.index}, by ${count(proof.path.length, "hash", "hashes")} up to the signed root.`;
  },

  async entry(_, found) {
    const [entry, statement, envelope, proof, trust] = earlier(found, "entry", "statement", "envelope", "proof", "trust");
    const { predicate, subject } = statement;
    const expected = {
      ...kind(predicate, Number(proof.index)),
      statement: hex(await sha256(envelope.payload)),
      model: subject[0].digest.sha256,
      name: subject[0].name,
      reservation: predicate.ledger.reservation,
    };
    for (const [field, value] of Object.entries(expected)) {
      need(entry[field] === value, `the entry's ${field} is not the certificate's`);
    }
    need(BigInt(predicate.ledger.reservation) < proof.index, "the reservation must stand before the certificate's entry");
    need(predicate.ledger.origin === trust.origin, "the certificate names another ledger");
    return `Model ${entry.name}; its budget was reserved by entry ${entry.reservation}, before any row was read.`;
  },

  async statementEntry(_, found) {
    const [entry, statement, envelope, proof, trust] = earlier(found, "entry", "statement", "envelope", "proof", "trust");
    const { predicate, subject, predicateType } = statement;
    const about = predicateType === WORTH
      ? { type: "evaluated", model: subject[0].digest.sha256, name: subject[0].name }
      : { type: "profiled", dataset: predicate.rows.dataset };
    const expected = { ...about, statement: hex(await sha256(envelope.payload)), reservation: predicate.ledger.reservation };
    for (const [field, value] of Object.entries(expected)) {
      need(entry[field] === value, `the entry's ${field} is not the statement's`);
    }
    const before = [predicate.ledger.reservation, predicate.model?.certificate, predicate.against?.certificate];
    need(before.every((each) => each === undefined || BigInt(each) < proof.index), "reservation and certificate must stand before it");
    need(predicate.ledger.origin === trust.origin, "the statement names another ledger");
    return `Its budget was reserved by entry ${entry.reservation}, before any row was read.`;
  },

  async statementStanding(_, found) {
    const [trust, statement] = earlier(found, "trust", "statement");
    const own = statement.predicate.model?.certificate;
    need(!trust.revoked.includes(own), `the model's certificate, entry ${own}, was revoked`);
    return "As far as the file of the keys knows.";
  },

  async standing(_, found) {
    const [trust, statement, proof] = earlier(found, "trust", "statement", "proof");
    const chain = [...ancestors(statement.predicate).map((each) => each.entry), Number(proof.index)];
    const ended = chain.find((entry) => trust.revoked.includes(entry));
    need(ended === undefined, `the certificate of entry ${ended} was revoked`);
    return "As far as the file of the keys knows.";
  },
};

function checkStatement(statement) {
  need(statement?._type === STATEMENT && statement.predicateType === PREDICATE, "statement: must be a privacy certificate");
  const subject = statement.subject;
  need(Array.isArray(subject) && subject.length === 1, "statement: must speak of exactly one model");
  need(typeof subject[0]?.name === "string", "statement: must name its model");
  need(/^[0-9a-f]{64}$/.test(subject[0]?.digest?.sha256), "statement: must hold the model's sha256");
  const { predicate } = statement;
  const whole = ["claim", "ledger", "public"].every((part) => typeof predicate?.[part] === "object" && predicate[part]);
  need(whole && Number.isSafeInteger(predicate.ledger.reservation), "statement: its predicate lacks a part");
}

const ancestors = (predicate) => predicate.public.supersedes ?? [];

// What the entry says of where the model came from: a release, or edits of the last model it supersedes.
function kind(predicate, index) {
  const chain = ancestors(predicate);
  if (chain.length === 0) return { type: "issued" };
  const places = [predicate.ledger.reservation, ...chain.map((each) => each.entry), index];
  need(places.every((each, at) => at === 0 || places[at - 1] < each), "supersedes: must be earlier entries, in order");
  return { type: "derived", base: chain.at(-1).entry };
}

// Every line in the log's name and by this key must verify, and there must be one. Other signers' lines say nothing here.
async function checkNote(checkpoint, name, key) {
  const id = await noteKeyId(name, key);
  const ours = checkpoint.signatures.filter((each) => each.name === name && same(each.id, id));
  need(ours.length > 0, "the checkpoint has no signature by the pinned log key");
  for (const { signature } of ours) {
    need(await signedBy(key, signature, encode(checkpoint.signed)), "the checkpoint's signature does not verify");
  }
}

const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
