// An identity provider with samlify, which encrypts its assertions. Its only user is signed in.
import { readFileSync } from "node:fs";
import express from "express";
import samlify from "samlify";

const { IdentityProvider, SamlLib, ServiceProvider, setSchemaValidator } = samlify;
const { ADDRESS, CERTIFICATE, KEY, METADATA } = process.env;
const PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent";
const BASIC = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic";
setSchemaValidator({ validate: async () => "not validated" }); // each application chooses its own

const provider = IdentityProvider({
  entityID: `${ADDRESS}/metadata`,
  privateKey: readFileSync(KEY),
  signingCert: readFileSync(CERTIFICATE),
  isAssertionEncrypted: true,
  dataEncryptionAlgorithm: "http://www.w3.org/2009/xmlenc11#aes256-gcm", // CBC is accepted inside signed responses only
  wantAuthnRequestsSigned: true,
  nameIDFormat: [PERSISTENT],
  singleSignOnService: [{ Binding: "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect", Location: `${ADDRESS}/sso` }],
  loginResponseTemplate: {
    context: SamlLib.defaultLoginResponseTemplate.context,
    attributes: [{ name: "email", valueTag: "email", nameFormat: BASIC, valueXsiType: "xs:string" }],
  },
});

const app = express();
app.get("/metadata", (request, response) => response.type("application/samlmetadata+xml").send(provider.getMetadata()));
app.get("/sso", async (request, response) => {
  const service = ServiceProvider({ metadata: readFileSync(METADATA) });
  const octets = request.originalUrl.split("?")[1].split("&Signature=")[0];
  const { extract } = await provider.parseLoginRequest(service, "redirect", { query: request.query, octetString: octets });
  const acs = service.entityMeta.getAssertionConsumerService("post");
  const [now, later] = [0, 5].map((minutes) => new Date(Date.now() + minutes * 60_000).toISOString());
  const fill = (template) => {
    const id = `_${crypto.randomUUID()}`;
    const values = {
      ID: id, AssertionID: `_${crypto.randomUUID()}`, InResponseTo: extract.request.id, Issuer: provider.entityMeta.getEntityID(),
      IssueInstant: now, ConditionsNotBefore: now, ConditionsNotOnOrAfter: later, SubjectConfirmationDataNotOnOrAfter: later,
      Destination: acs, SubjectRecipient: acs, AssertionConsumerServiceURL: acs, Audience: service.entityMeta.getEntityID(),
      EntityID: service.entityMeta.getEntityID(), StatusCode: "urn:oasis:names:tc:SAML:2.0:status:Success",
      NameIDFormat: PERSISTENT, NameID: "lee-17", attrEmail: "lee@acme.example",
    };
    const statement = `<saml:AuthnStatement AuthnInstant="${now}" SessionIndex="_s"><saml:AuthnContext><saml:AuthnContextClassRef>` +
      "urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>";
    return { id, context: SamlLib.replaceTagsByValue(template.replace("{AuthnStatement}", statement), values) };
  };
  const { context } = await provider.createLoginResponse(service, { extract }, "post", {}, fill);
  response.send(`<form method="post" action="${acs}"><input type="hidden" name="SAMLResponse" value="${context}"></form>`);
});
app.listen(new URL(ADDRESS).port, "127.0.0.1");
