// Runs the browser's checkClaim over statements: node claims_driver.mjs verify_claim.js STATEMENT...
// One line of JSON for each: {"verdict": "sound" | "forged" | "open", "why"}.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [script, ...statements] = process.argv.slice(2);
const { checkClaim } = await import(pathToFileURL(script).href);
for (const path of statements) {
  let said;
  try {
    const { open, bound } = checkClaim(JSON.parse(readFileSync(path, "utf8")).predicate);
    said = { verdict: open ? "open" : "sound", why: open ?? bound };
  } catch (error) {
    said = { verdict: "forged", why: error.message };
  }
  console.log(JSON.stringify(said));
}
