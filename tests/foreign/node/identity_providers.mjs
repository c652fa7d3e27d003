// Identity providers of organizations in one process: oidc-provider, once for each configuration, below a path of its own.
// Its development pages accept any login name and password.
import { generateKeyPairSync } from "node:crypto";
import express from "express";
import Provider from "oidc-provider";

const { ADDRESS, CLIENTS } = process.env;
const key = (type, options, alg) => ({ ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }), alg, use: "sig" });
const jwks = { keys: [key("rsa", { modulusLength: 2048 }, "RS256"), key("ec", { namedCurve: "P-256" }, "ES256")] };

const app = express();
for (const [name, client] of Object.entries(JSON.parse(CLIENTS))) {
  const provider = new Provider(`${ADDRESS}/${name}`, {
    clients: [client],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    conformIdTokenClaims: name !== "basic", // the others return claims at the userinfo endpoint only
    cookies: { keys: ["a secret of the tests"] },
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256"] },
    features: { backchannelLogout: { enabled: true } },
    fetch: (url, { dispatcher, ...options }) => fetch(url, options), // its dispatcher refuses the loopback interface
    jwks,
    findAccount: (context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@acme.example`, email_verified: true, name: `${id} of ${name}`, groups: ["staff"] }),
    }),
  });
  provider.on("backchannel.error", (context, error) => console.log(`backchannel.error ${name} ${error.message}`));
  for (const event of ["grant.error", "server_error"]) {
    provider.on(event, (context, error) => console.log(`${event} ${name} ${error.message} ${error.error_detail}`));
  }
  provider.on("backchannel.success", () => console.log(`backchannel.success ${name}`));
  app.use(`/${name}`, provider.callback());
}
app.listen(new URL(ADDRESS).port, "127.0.0.1");
