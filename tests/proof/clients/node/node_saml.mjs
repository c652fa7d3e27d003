// node-saml as a service provider: reads one JSON request from its input, writes one JSON answer.
import { SAML, ValidateInResponseTo } from "@node-saml/node-saml";

let input = "";
for await (const piece of process.stdin) input += piece;
const { options, calls } = JSON.parse(input);
const kept = new Map(Object.entries(options.asked ?? {}));
delete options.asked;
const saml = new SAML({
  ...options,
  validateInResponseTo: options.validateInResponseTo ?? ValidateInResponseTo.never,
  cacheProvider: {
    saveAsync: async (key, value) => (kept.set(key, value), { value, createdAt: Date.now() }),
    getAsync: async (key) => kept.get(key) ?? null,
    removeAsync: async (key) => (kept.delete(key) ? key : null),
  },
});
const answers = [];
for (const [name, ...given] of calls) {
  try {
    answers.push({ ok: (await saml[name](...given)) ?? null });
  } catch (error) {
    answers.push({ error: String(error.message ?? error) });
  }
}
process.stdout.write(JSON.stringify({ answers, asked: Object.fromEntries(kept) }));
