// The ledger checked by the browser itself: that an entry is in the tree that the ledger's key signed, and that today's
// tree begins with one that was kept. WebCrypto does the hashes and the signatures. The key comes from this server unless
// a trust file is chosen: then it is worth what the way was worth by which that file came.

import {
  Refused, concat, encode, fromBase64, holdsAt, leafHash, need, noteKeyId, readCheckpoint, readProof, readTrust, rootFrom, same,
  sha256, signedBy,
} from "./verify_formats.js";

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "*/*" } });
  need(answer.ok, `the server answered ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function trustFrom(input) {
  const file = input?.files[0];
  const trust = await readTrust(file ? new Uint8Array(await file.arrayBuffer()) : await fetched("/ui/trust.json"));
  return { trust, by: file ? `the keys in ${file.name}` : "the key that this server says is the ledger's" };
}

/** The checkpoint, once the ledger's key for its size has signed it. */
async function signed(checkpoint, { trust, by }) {
  need(checkpoint.origin === trust.origin, `it is of the ledger ${checkpoint.origin}, the keys are of ${trust.origin}`);
  const log = trust.logs.findLast((each) => holdsAt(each, checkpoint.size));
  need(log, `no key speaks for a ledger of ${checkpoint.size} entries`);
  const id = await noteKeyId(trust.origin, log.key);
  const ours = checkpoint.signatures.filter((each) => each.name === trust.origin && same(each.id, id));
  need(ours.length > 0, "the ledger's key did not sign it");
  for (const { signature } of ours) {
    need(await signedBy(log.key, signature, encode(checkpoint.signed)), "its signature does not verify");
  }
  return `${checkpoint.size.toLocaleString("en")} entries, signed by ${by}.`;
}

const nodeHash = (left, right) => sha256(concat([1], left, right));

/** RFC 9162, 2.1.4.2: the tree (n, rootN) begins with the tree (m, rootM); Refused where it does not. */
export async function checkConsistency(m, n, path, rootM, rootN) {
  need(m > 0n && m <= n, `a tree of ${n} entries cannot continue one of ${m}`);
  if (m === n) {
    need(path.length === 0 && same(rootM, rootN), "two trees of one size have two roots: one of them was written anew");
    return;
  }
  need(path.length > 0, "consistency proof: is too short");
  const nodes = (m & (m - 1n)) === 0n ? [rootM, ...path] : path;
  let [fn, sn] = [m - 1n, n - 1n];
  while (fn & 1n) [fn, sn] = [fn >> 1n, sn >> 1n];
  let [before, after] = [nodes[0], nodes[0]];
  for (const hash of nodes.slice(1)) {
    need(sn !== 0n, "consistency proof: is too long");
    if (fn & 1n || fn === sn) {
      [before, after] = [await nodeHash(hash, before), await nodeHash(hash, after)];
      while (fn !== 0n && !(fn & 1n)) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      after = await nodeHash(after, hash);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  need(sn === 0n, "consistency proof: is too short");
  need(same(before, rootM) && same(after, rootN), "today's ledger does not begin with the one that was kept: it was changed");
}

function entrySteps(place, shown) {
  return [
    ["The proof speaks of the bytes on this page", async (found) => {
      found.proof = readProof(await fetched(place.dataset.proof));
      need(same(found.proof.entry, encode(shown)), "it holds other bytes");
      need(found.proof.index === BigInt(place.dataset.entry), "it is of another entry");
      return `${found.proof.entry.length.toLocaleString("en")} bytes.`;
    }],
    ["Their hash leads to the checkpoint's root", async ({ proof }) => {
      const { size, root } = proof.checkpoint;
      need(same(await rootFrom(proof.index, size, await leafHash(proof.entry), proof.path), root), "it leads to another root");
      return `By ${proof.path.length} hashes.`;
    }],
    ["The checkpoint is signed", async ({ proof }) => signed(proof.checkpoint, await trustFrom(null))],
  ];
}

function keptSteps(kept, keys) {
  return [
    ["The kept checkpoint is signed", async (found) => {
      found.keys = await trustFrom(keys);
      found.kept = readCheckpoint(new TextDecoder().decode(new Uint8Array(await kept.files[0].arrayBuffer())));
      return signed(found.kept, found.keys);
    }],
    ["Today's checkpoint is signed", async (found) => {
      found.now = readCheckpoint(new TextDecoder().decode(await fetched("/ui/audit/checkpoint")));
      return signed(found.now, found.keys);
    }],
    ["Today's ledger begins with the kept one", async ({ kept: before, now }) => {
      need(before.size <= now.size, `it has ${now.size} entries, the kept one had ${before.size}: it was rolled back`);
      const raw = await fetched(`/v1/ledger/consistency?from=${before.size}&to=${now.size}`);
      const path = JSON.parse(new TextDecoder().decode(raw)).hashes.map((each) => fromBase64(each, "hash"));
      await checkConsistency(before.size, now.size, path, before.root, now.root);
      return `The first ${before.size.toLocaleString("en")} entries are as they were.`;
    }],
  ];
}

/** Take the steps one after the other, and show what came of each. After one that failed no other is taken. */
async function take(steps, place) {
  const found = {}, list = document.createElement("ul");
  list.className = "ticks";
  place.replaceChildren(list);
  for (const [title, check] of steps) {
    const result = await outcome(check, found);
    list.append(line(title, result));
    if (!result.good) return;
  }
}

async function outcome(check, found) {
  if (!globalThis.crypto?.subtle) {
    return { good: false, says: "the browser withholds its cryptography where a page comes neither by https nor from this machine" };
  }
  try {
    return { good: true, says: await check(found) };
  } catch (error) {
    return { good: false, says: error instanceof Refused ? error.message : "it could not be checked" };
  }
}

function line(title, { good, says }) {
  const item = document.createElement("li"), word = document.createElement("b"), more = document.createElement("span");
  item.className = good ? "good" : "bad";
  word.textContent = `${good ? "Yes" : "No"}. ${title}: `;
  more.textContent = says;
  item.append(word, more);
  return item;
}

const entry = document.getElementById("checked");
if (entry) take(entrySteps(entry, document.getElementById("exact").textContent), entry);

const form = document.getElementById("kept-form");
if (form) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    take(keptSteps(form.elements.kept, form.elements.keys), document.getElementById("kept-result"));
  });
}
