// openid-client in its default mode: discovery by the issuer, all checks on, PKCE. Only http is allowed, because the tests have no TLS.
import * as client from "openid-client";
import { ADDRESS, CLIENT_ID, CLIENT_SECRET, ISSUER, application, serve } from "./application.mjs";

const options = { execute: [client.allowInsecureRequests] };
const config = await client.discovery(new URL(ISSUER), CLIENT_ID, CLIENT_SECRET, undefined, options);
const app = application();

app.get("/login", async (request, response) => {
  const code_verifier = client.randomPKCECodeVerifier();
  const checks = { pkceCodeVerifier: code_verifier, expectedState: client.randomState(), expectedNonce: client.randomNonce() };
  request.session.checks = checks;
  const address = client.buildAuthorizationUrl(config, {
    redirect_uri: `${ADDRESS}/callback`,
    scope: "openid profile email offline_access",
    prompt: "consent",
    code_challenge: await client.calculatePKCECodeChallenge(code_verifier),
    code_challenge_method: "S256",
    state: checks.expectedState,
    nonce: checks.expectedNonce,
  });
  response.redirect(address.href);
});

app.get("/callback", async (request, response) => {
  const tokens = await client.authorizationCodeGrant(config, new URL(request.originalUrl, ADDRESS), request.session.checks);
  const claims = tokens.claims();
  Object.assign(request.session, { sub: claims.sub, access: tokens.access_token, refresh: tokens.refresh_token });
  response.json(claims);
});

app.get("/userinfo", async (request, response) => {
  response.json(await client.fetchUserInfo(config, request.session.access, request.session.sub));
});

app.get("/refresh", async (request, response) => {
  const tokens = await client.refreshTokenGrant(config, request.session.refresh);
  Object.assign(request.session, { access: tokens.access_token, refresh: tokens.refresh_token });
  response.json(tokens.claims());
});

serve(app);
