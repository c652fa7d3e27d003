// node-saml as a service provider: reads one JSON request from its input, writes one JSON answer.
import { SAML, ValidateInResponseTo } from "@node-saml/node-saml";

let input = "";
for await (const piece of process.stdin) input += piece;
const { options, calls } = JSON.parse(input);
const requestIds = new Map(Object.entries(options.requests ?? {}));
delete options.requests;
const saml = new SAML({
  ...options,
  validateInResponseTo: options.validateInResponseTo ?? ValidateInResponseTo.never,
  cacheProvider: {
    saveAsync: async (key, value) => (requestIds.set(key, value), { value, createdAt: Date.now() }),
    getAsync: async (key) => requestIds.get(key) ?? null,
    removeAsync: async (key) => (requestIds.delete(key) ? key : null),
  },
});
const answers = [];
for (const [name, ...args] of calls) {
  try {
    answers.push({ ok: (await saml[name](...args)) ?? null });
  } catch (error) {
    answers.push({ error: String(error.message ?? error) });
  }
}
process.stdout.write(JSON.stringify({ answers, requests: Object.fromEntries(requestIds) }));
