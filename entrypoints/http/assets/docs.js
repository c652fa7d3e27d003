// Starts Swagger UI with the API description of this service. It contacts no other host.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

// Replaces each reference by the part of the description that it names, except one inside of that same part. Names of components need
// no decoding (RFC 6901).
const inline = (description, node, names = []) => {
  if (node === null || typeof node !== "object") return node;
  if (Array.isArray(node)) return node.map((item) => inline(description, item, names));
  const { $ref: name, ...rest } = node; // a field of a model can have this name, too
  if (typeof name === "string" && name.startsWith("#/")) {
    if (names.includes(name)) return node;
    const part = name.split("/").slice(1).reduce((outer, key) => outer[key], description);
    return inline(description, { ...part, ...rest, $$ref: name }, [...names, name]);
  }
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, inline(description, child, names)]));
};

// By default, Swagger UI converts the whole description for each operation that a reader opens, which takes many seconds.
const resolveSubtree = (description, path) => {
  const node = path.reduce((outer, key) => outer?.[key], description);
  return { spec: inline(description, node), errors: [] };
};

SwaggerUIBundle({
  url: "/openapi.json",
  plugins: [() => ({ fn: { resolveSubtree } })],
  domNode: document.getElementById("docs"),
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "none", // collapsed, because the API has many operations
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
