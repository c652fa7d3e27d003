// Starts Swagger UI on this service's own description. Nothing is loaded from, or sent to, anywhere else.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("docs"),
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "none", // of some 150 operations at once only the first few come to be shown
  filter: true,
  validatorUrl: null, // the default sends the document's address to a validator elsewhere
  requestInterceptor: (request) => {
    request.credentials = "omit"; // whoever tries something out here does it with the token they entered, not as a signed-in browser
    return request;
  },
});
