// openid-client without a user: the grant client_credentials, with a secret or a private key. Prints the response of the token endpoint and
// that of the API. Only http is allowed, as the tests have no TLS.
import * as client from "openid-client";

const { ISSUER, CLIENT_ID, CLIENT_SECRET, PRIVATE_KEY, SCOPE, PATH_OF_API } = process.env;

async function authentication() {
  if (!PRIVATE_KEY) return client.ClientSecretBasic(CLIENT_SECRET);
  const jwk = JSON.parse(PRIVATE_KEY);
  const key = await crypto.subtle.importKey("jwk", jwk, { name: "ECDSA", namedCurve: "P-256" }, false, ["sign"]);
  return client.PrivateKeyJwt({ key, kid: jwk.kid });
}

const options = { execute: [client.allowInsecureRequests] };
const config = await client.discovery(new URL(ISSUER), CLIENT_ID, undefined, await authentication(), options);
const tokens = await client.clientCredentialsGrant(config, { scope: SCOPE });
const answer = await client.fetchProtectedResource(config, tokens.access_token, new URL(PATH_OF_API, ISSUER), "GET");
console.log(JSON.stringify({ tokens, status: answer.status, body: await answer.json() }));
