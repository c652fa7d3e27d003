// oidc-provider as an identity provider with its own development pages, which accept any login name and password.
import Provider from "oidc-provider";

const { ADDRESS, CLIENT_ID, CLIENT_SECRET, REDIRECT_URI } = process.env;

const provider = new Provider(ADDRESS, {
  clients: [{ client_id: CLIENT_ID, client_secret: CLIENT_SECRET, redirect_uris: [REDIRECT_URI] }],
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  conformIdTokenClaims: false, // the ID token has the claims of the scopes, as that of Google
  cookies: { keys: ["a secret of the tests"] },
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true }),
  }),
});

provider.listen(new URL(ADDRESS).port, "127.0.0.1");
