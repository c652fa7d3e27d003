// Signs in, creates an organization, and lists the organizations, with types that are generated from the API description.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const [baseUrl, email, password] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl });

const login = await client.POST("/api/auth/login", { body: { email, password } });
if (login.error) throw new Error(login.error.error_code);
const headers = { Authorization: `Bearer ${login.data.access_token}` };

const created = await client.POST("/api/organizations", { headers, body: { name: "Acme", slug: "acme" } });
if (created.error) throw new Error(created.error.error_code);

const again = await client.POST("/api/organizations", { headers, body: { name: "Acme", slug: "acme" } });
const code: components["schemas"]["Error"]["error_code"] | undefined = again.error?.error_code;

const listed = await client.GET("/api/organizations", { headers });
if (listed.error) throw new Error(listed.error.error_code);
console.log(JSON.stringify({ code, slugs: listed.data.map(({ organization }) => organization.slug) }));
