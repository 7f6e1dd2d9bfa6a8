// `node provider.mjs PORT SITE`: a provider of OpenID Connect whose people are all in the group `ward`, and which tells
// the client at SITE who signs out.
import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const [port, site] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const client = {
  client_id: "dpserve",
  client_secret: "hush",
  redirect_uris: [`${site}/ui/sso/back`],
  backchannel_logout_uri: `${site}/ui/sso/logout`,
  backchannel_logout_session_required: true,
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: "one" }] },
  clients: [client],
  claims: { openid: ["sub", "groups"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["of a test"] },
  features: { backchannelLogout: { enabled: true } },
  fetch: (url, { dispatcher, ...options }) => fetch(url, options), // which refuses addresses of this machine
  findAccount: (_, name) => ({ accountId: name, claims: () => ({ sub: name, groups: ["ward"] }) }),
});
provider.on("backchannel.success", () => console.log("the client knows"));
provider.on("backchannel.error", (_, error) => console.log(error));
provider.listen(Number(port));
