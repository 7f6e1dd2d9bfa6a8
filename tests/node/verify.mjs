// node verify.mjs BUNDLE MODEL HINT=PEM...
// Exit 0 when sigstore's own verifier accepts the bundle's signature by the key that its hint names, and the statement
// has one subject, the model. Its verifier compares no digest: that is done here.
import { createHash, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { bundleFromJSON } from "@sigstore/bundle";
import { Verifier, toSignedEntity, toTrustMaterial } from "@sigstore/verify";

const [bundlePath, modelPath, ...pairs] = process.argv.slice(2);
const keys = new Map(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
const nobody = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const trust = toTrustMaterial(nobody, (hint) => {
  if (!keys.has(hint)) throw new Error(`no key for the hint ${hint}`);
  return { publicKey: createPublicKey(readFileSync(keys.get(hint))), validFor: () => true };
});
const verifier = new Verifier(trust, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 });

const bundle = bundleFromJSON(JSON.parse(readFileSync(bundlePath, "utf8")));
verifier.verify(toSignedEntity(bundle));

const { payload, payloadType } = bundle.content.dsseEnvelope;
if (payloadType !== "application/vnd.in-toto+json") throw new Error(`payloadType ${payloadType}`);
const { subject, predicate } = JSON.parse(payload.toString("utf8"));
const digest = createHash("sha256").update(readFileSync(modelPath)).digest("hex");
if (subject.length !== 1 || subject[0].digest.sha256 !== digest) throw new Error("the statement is not about this model");
console.log(JSON.stringify({ model: subject[0].name, epsilon: predicate.claim?.epsilon }));
