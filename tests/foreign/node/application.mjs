// An Express application with sessions, for all clients of the tests. It shows errors of the client library as 502.
import express from "express";
import session from "express-session";

export const { ISSUER, CLIENT_ID, CLIENT_SECRET, ADDRESS } = process.env;

export function application() {
  const app = express();
  app.use(session({ secret: "a secret of the tests", resave: false, saveUninitialized: false }));
  return app;
}

export function serve(app) {
  app.use((error, request, response, next) => {
    const { message, error: code, status } = error;
    response.status(502).json({ message, error: code, status, cause: String(error.cause?.message ?? "") });
  });
  app.listen(new URL(ADDRESS).port, "127.0.0.1");
}
