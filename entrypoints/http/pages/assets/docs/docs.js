// Starts Swagger UI with the API description of this service. It contacts no other host.
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
  docExpansion: "none", // collapsed, because the API has about 150 operations
  filter: true,
  validatorUrl: null, // the default sends the URL of the document to a validator on another host
  requestInterceptor: (request) => {
    request.credentials = "omit"; // requests use the token that the user entered, not the session of the browser
    return request;
  },
});
