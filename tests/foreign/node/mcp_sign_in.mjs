// Sign in to an MCP server with @modelcontextprotocol/client or its predecessor, /sdk, and call a tool with and without a usable
// access token. The program prints the address that the user opens, and a line for each call. Its client id is the address of its
// metadata. Without one, it registers itself.
import { createServer } from "node:http";
import { once } from "node:events";

const [name, address, port, clientMetadataUrl] = process.argv.slice(2);
const modules = { client: [""], sdk: ["/client/index.js", "/client/streamableHttp.js", "/client/auth.js"] }[name];
const parts = await Promise.all(modules.map((path) => import(`@modelcontextprotocol/${name}${path}`)));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = Object.assign({}, ...parts);

const saved = {};
const redirectUrl = `http://127.0.0.1:${port}/callback`;
const authProvider = {
  redirectUrl,
  clientMetadataUrl,
  clientMetadata: { client_name: name, redirect_uris: [redirectUrl], token_endpoint_auth_method: "none" },
  state: () => (saved.state ??= crypto.randomUUID()),
  clientInformation: () => saved.client,
  saveClientInformation: (client) => (saved.client = client),
  tokens: () => saved.tokens,
  saveTokens: (tokens) => (saved.tokens = tokens),
  codeVerifier: () => saved.verifier,
  saveCodeVerifier: (verifier) => (saved.verifier = verifier),
  redirectToAuthorization: (authorization) => console.log(authorization.href),
};

async function callback() {
  const server = createServer().listen(port, "127.0.0.1");
  const [request, response] = await once(server, "request");
  response.setHeader("Connection", "close").end("Signed in");
  server.close();
  const parameters = new URL(request.url, redirectUrl).searchParams;
  if (parameters.get("state") !== saved.state) throw new Error("The state is not that of the request.");
  return parameters;
}

async function listNotes() {
  const client = new Client({ name, version: "1.0.0" });
  const transport = new StreamableHTTPClientTransport(new URL(address), { authProvider });
  try {
    await client.connect(transport);
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    const parameters = await callback();
    await transport.finishAuth(name === "sdk" ? parameters.get("code") : parameters);
    return listNotes();
  }
  const { content } = await client.callTool({ name: "list_notes", arguments: {} });
  await client.close();
  return content[0].text;
}

console.log(await listNotes());
saved.tokens = { ...saved.tokens, access_token: "expired" };
console.log(await listNotes());
