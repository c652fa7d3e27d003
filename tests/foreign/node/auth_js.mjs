// Auth.js for Express, with a provider of the type `oidc`.
import { ExpressAuth, getSession } from "@auth/express";
import { CLIENT_ID, CLIENT_SECRET, ISSUER, application, serve } from "./application.mjs";

const settings = {
  providers: [{ id: "gatehouse", name: "Gatehouse", type: "oidc", issuer: ISSUER, clientId: CLIENT_ID, clientSecret: CLIENT_SECRET }],
  secret: "a secret of the tests",
  trustHost: true,
  callbacks: {
    jwt: ({ token, profile }) => (profile ? { ...token, sub: profile.sub } : token),
    session: ({ session, token }) => ({ ...session, user: { ...session.user, sub: token.sub } }),
  },
};

const app = application();
app.use("/auth", ExpressAuth(settings));
app.get("/login", (request, response) => response.redirect("/auth/signin?callbackUrl=/"));
app.get("/", async (request, response) => {
  const session = await getSession(request, settings);
  response.json(session?.user ?? {});
});

serve(app);
