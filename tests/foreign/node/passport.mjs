// passport-openidconnect, which takes the addresses of the provider one by one. It reads the claims from the userinfo endpoint.
import passport from "passport";
import OpenIDConnectStrategy from "passport-openidconnect";
import { ADDRESS, CLIENT_ID, CLIENT_SECRET, ISSUER, application, serve } from "./application.mjs";

const app = application();
const settings = {
  issuer: ISSUER,
  authorizationURL: `${ISSUER}/auth/authorize`,
  tokenURL: `${ISSUER}/auth/token`,
  userInfoURL: `${ISSUER}/auth/userinfo`,
  clientID: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
  callbackURL: `${ADDRESS}/callback`,
  scope: ["profile", "email"],
};

passport.use(
  new OpenIDConnectStrategy(settings, (issuer, { id, displayName, emails }, done) =>
    done(null, { iss: issuer, sub: id, name: displayName, email: emails[0].value }),
  ),
);
passport.serializeUser((user, done) => done(null, user));
passport.deserializeUser((user, done) => done(null, user));
app.use(passport.session());

app.get("/login", passport.authenticate("openidconnect"));
app.get("/callback", passport.authenticate("openidconnect", { failWithError: true }), (request, response) => response.redirect("/"));
app.get("/", (request, response) => response.json(request.user));

serve(app);
