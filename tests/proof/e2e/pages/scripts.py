"""The scripts that the tests run in a page. A single script takes less time than a request per element."""

from typing import Final

# Pass a violation list to the last argument, or nothing if the page has no axe-core.
RUN_AXE: Final = """
const [options, done] = arguments;
if (!("axe" in window)) return done(null);
document.getAnimations().forEach((animation) => animation.finish());  // during a transition, colors have too little contrast
const describe = ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(" ")}`;
const run = axe.run({ ...options, resultTypes: ["violations"] });
run.then(({ violations }) => done(violations.map(describe)), (error) => done([String(error)]));
"""
CEREMONY: Final = """
const [ceremony, parse, options, done] = arguments;
navigator.credentials[ceremony]({ publicKey: PublicKeyCredential[parse](options) })
    .then((credential) => done(credential.toJSON()), (error) => done(error.name));
"""
# The elements with a name.
NAMED: Final = """
const [tag, name] = arguments;
const isNamed = (element) => element.textContent.trim().replace(/\\s+/g, " ") === name;
const named = (selector) => [...document.querySelectorAll(selector)].filter(isNamed);
const inside = named(`main ${tag}`);
return inside.length ? inside : named(tag);
"""
# A label's fields.
LABELLED: Final = """
const isLabelled = (label) => label.checkVisibility() && label.innerText.trim() === arguments[0];
return [...document.querySelectorAll("label")].filter(isLabelled).map((label) => document.getElementById(label.htmlFor));
"""
# Select the content of a label's field. Return whether a user could type into it.
SELECT_CONTENT: Final = f"""
const [field] = (() => {{{LABELLED}}})();
field.scrollIntoView({{ block: "nearest", behavior: "instant" }});
field.focus();
field.select();
return field === document.activeElement && !field.readOnly;
"""
# Return an element's middle, or nothing if something covers it.
MIDDLE: Final = """
const [element] = arguments;
element.scrollIntoView({ block: "center", behavior: "instant" });
const { left, top, width, height } = element.getClientRects()[0];
const [x, y] = [left + width / 2, top + height / 2];
return element.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
"""
# Write a document into the empty page, which keeps axe-core, because that takes long to load. Return whether the page is empty.
WRITE: Final = """
if (location.href !== "about:blank") return false;
document.open();
document.write(arguments[0]);
document.close();
return true;
"""
# Return the time at which the page was requested, and whether it is loaded. No two pages have the same time.
PAGE: Final = "return [performance.timeOrigin, document.readyState === 'complete']"
# Return the page as a single document that needs no server, without its scripts.
SNAPSHOT: Final = """
const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText));
const copy = document.documentElement.cloneNode(true);
copy.querySelectorAll("script, style, link[rel=stylesheet]").forEach((element) => element.remove());
const style = copy.querySelector("head").appendChild(document.createElement("style"));
style.textContent = rules.join(" ");
return `<!doctype html>${copy.outerHTML}`;
"""
FITS: Final = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
