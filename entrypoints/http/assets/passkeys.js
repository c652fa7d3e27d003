// Passkeys on our pages (WebAuthn Level 3). A button with data-passkey runs a ceremony with its data-options, and sends its form with the
// result in the field "credential". Every page says how to go on without scripts.
"use strict";

const WORDS = {
  NotAllowedError: "Nothing was chosen. Try again, or use another way.",
  InvalidStateError: "This device or security key already has a passkey for your account.",
  SecurityError: "Passkeys do not work at this address. Open this page at its own host name, not at an address of numbers.",
  NotSupportedError: "This browser or device cannot do this. Use another one.",
};
const UNSUPPORTED = "This browser cannot use passkeys here. It needs https, and a browser of the last years.";
const RENEWED_AFTER = 9 * 60 * 1000; // a challenge works for 10 minutes
const BACKGROUND_LIMIT = 3000;

const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

// By hand, because extensions of password managers return credentials with a toJSON that fails.
function toOptions(json) {
  const withBytes = (each) => ({ ...each, id: decode(each.id) });
  const options = { ...json, challenge: decode(json.challenge) };
  if (json.user) options.user = withBytes(json.user);
  for (const list of ["allowCredentials", "excludeCredentials"]) if (json[list]) options[list] = json[list].map(withBytes);
  return options;
}

function toJson({ id, rawId, type, response }) {
  const texts = { transports: response.getTransports?.() };
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (response[name]) texts[name] = encode(response[name]);
  }
  return JSON.stringify({ id, rawId: encode(rawId), type, response: texts });
}

let running = new AbortController(); // a browser runs one ceremony at a time

async function run(button, mediation) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const publicKey = toOptions(JSON.parse(button.dataset.options));
  const credential = await navigator.credentials[button.dataset.passkey]({ publicKey, mediation, signal });
  if (signal.aborted) return;
  const { form } = button;
  form.elements.credential.value = toJson(credential);
  if (button.hasAttribute("formaction")) form.action = button.formAction;
  form.submit();
}

// After a sign-in with a password, the browser may create a passkey without asking. It must not delay the page.
async function createInBackground(button) {
  if (!(await PublicKeyCredential.getClientCapabilities?.())?.conditionalCreate) return;
  const created = run(button, "conditional").catch(() => {});
  const own = running;
  setTimeout(() => own.abort(), BACKGROUND_LIMIT);
  await created;
}

// The browser proposes passkeys in the field of the address, until one is chosen or a button is pressed.
async function propose(button) {
  if (await PublicKeyCredential.isConditionalMediationAvailable?.()) await run(button, "conditional").catch(() => {});
}

for (const button of document.querySelectorAll("button[data-passkey]")) {
  const { form, dataset } = button;
  const say = (text) => { button.nextElementSibling.textContent = text; };
  if (!window.PublicKeyCredential) {
    if (!("proposes" in dataset)) say(UNSUPPORTED);
    continue;
  }
  if ("background" in dataset) {
    createInBackground(button);
    continue;
  }
  const start = async () => {
    if (!button.formNoValidate && !form.reportValidity()) return;
    say("");
    try {
      await run(button);
    } catch (error) {
      if (error.name === "AbortError") return; // another button was pressed
      say(WORDS[error.name] ?? `This did not work (${error.name}). Try again, or use another way.`);
      if ("proposes" in dataset) propose(button);
    }
  };
  button.hidden = false;
  button.addEventListener("click", start);
  form.addEventListener("submit", (event) => {
    if (event.submitter) return;
    event.preventDefault(); // Enter, in a form without another button
    start();
  });
  if ("proposes" in dataset) propose(button);
}

// The sign-in form says whether this device can create a passkey, so that one is offered.
const can = document.querySelector("input[name=can_passkey]");
if (can) {
  window.PublicKeyCredential?.isUserVerifyingPlatformAuthenticatorAvailable().then((able) => { can.value = able ? "yes" : ""; });
}

// A page that comes back from the history has a challenge that is used up.
addEventListener("pageshow", (event) => {
  if (event.persisted && document.querySelector("[data-passkey]")) location.reload();
});

// Open for so long, the sign-in page gets a new challenge when the user comes back and has typed nothing.
const opened = Date.now();
addEventListener("focus", () => {
  const typed = [...document.querySelectorAll("input:not([type=hidden])")].some((input) => input.value !== input.defaultValue);
  if (document.querySelector("[data-renews]") && !typed && Date.now() - opened > RENEWED_AFTER) location.reload();
});

// Tell password managers which passkeys the account accepts, and its present name (section 5.1.10).
for (const element of document.querySelectorAll("[data-signals]")) {
  for (const [name, options] of Object.entries(JSON.parse(element.dataset.signals))) {
    window.PublicKeyCredential?.[name]?.(options).catch(() => {});
  }
}
