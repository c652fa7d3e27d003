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
  onComplete: () => {
    // Names, levels and landmarks that screen readers need, and Swagger UI lacks.
    const describe = (selector, attributes) => {
      for (const element of document.querySelectorAll(selector)) {
        for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      }
    };
    describe("#servers", { "aria-label": "Server" });
    describe(".filter-container", { role: "search" });
    describe(".operation-filter-input", { "aria-label": "Filter by tag or path" });
    describe(".information-container", { role: "region", "aria-label": "About" });
    describe(".schemes-server-container", { role: "region", "aria-label": "Server and credentials" });
    describe("h3.opblock-tag, .models h4", { "aria-level": "2" });
  },
});
