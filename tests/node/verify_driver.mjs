// Runs serving/pages/static/verify.js outside a browser. Lines of JSON in: {"part": {name: base64}} over files that were given
// first; lines of JSON out: {"ok", "steps": {id: state}, "says": {id: words}}.
import { createInterface } from "node:readline";
import { webcrypto } from "node:crypto";
import { pathToFileURL } from "node:url";

globalThis.crypto ??= webcrypto;
const { verifyModel, verifyStatement } = await import(pathToFileURL(process.argv[2]).href);
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
let files = {};
for await (const line of createInterface({ input: process.stdin })) {
  const given = Object.fromEntries(Object.entries(JSON.parse(line)).map(([name, text]) => [name, bytes(text)]));
  files = Object.keys(files).length || given.statement ? files : given;
  const { ok, steps } = given.statement
    ? await verifyStatement({ ...given, certificate: given.statement })
    : await verifyModel({ ...files, ...given });
  const by = (what) => Object.fromEntries(steps.map((step) => [step.id, step[what]]));
  console.log(JSON.stringify({ ok, steps: by("state"), says: by("says") }));
}
