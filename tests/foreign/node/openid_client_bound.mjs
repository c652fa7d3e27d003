// openid-client as FAPI 2.0 asks: private_key_jwt, pushed requests, and tokens that are bound to a key. Only http is allowed, as the tests have no TLS.
import * as client from "openid-client";
import { ADDRESS, CLIENT_ID, ISSUER, application, serve } from "./application.mjs";

const options = { execute: [client.allowInsecureRequests] };
const jwk = JSON.parse(process.env.PRIVATE_KEY);
const key = await crypto.subtle.importKey("jwk", jwk, { name: "ECDSA", namedCurve: "P-256" }, false, ["sign"]);
const config = await client.discovery(new URL(ISSUER), CLIENT_ID, undefined, client.PrivateKeyJwt({ key, kid: jwk.kid }), options);
const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair("ES256"));
const app = application();

app.get("/login", async (request, response) => {
  const code_verifier = client.randomPKCECodeVerifier();
  const checks = { pkceCodeVerifier: code_verifier, expectedState: client.randomState(), expectedNonce: client.randomNonce() };
  request.session.checks = checks;
  const parameters = {
    redirect_uri: `${ADDRESS}/callback`,
    scope: "openid profile email offline_access",
    prompt: "consent",
    code_challenge: await client.calculatePKCECodeChallenge(code_verifier),
    code_challenge_method: "S256",
    state: checks.expectedState,
    nonce: checks.expectedNonce,
  };
  const address = await client.buildAuthorizationUrlWithPAR(config, parameters, { DPoP });
  response.redirect(address.href);
});

app.get("/callback", async (request, response) => {
  const tokens = await client.authorizationCodeGrant(config, new URL(request.originalUrl, ADDRESS), request.session.checks, undefined, { DPoP });
  if (tokens.token_type !== "dpop") throw new Error(`The token type is ${tokens.token_type}.`);
  const claims = tokens.claims();
  Object.assign(request.session, { sub: claims.sub, access: tokens.access_token, refresh: tokens.refresh_token });
  response.json(claims);
});

app.get("/userinfo", async (request, response) => {
  response.json(await client.fetchUserInfo(config, request.session.access, request.session.sub, { DPoP }));
});

app.get("/refresh", async (request, response) => {
  const tokens = await client.refreshTokenGrant(config, request.session.refresh, undefined, { DPoP });
  Object.assign(request.session, { access: tokens.access_token, refresh: tokens.refresh_token });
  response.json(tokens.claims());
});

serve(app);
