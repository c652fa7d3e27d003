"""Checks documents in a real browser, without a server: by axe-core's rules, and that they are as wide as the window."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tests.proof.e2e.browser import AXE, SCREENSHOTS_VARIABLE, Browser

BATCH: Final = 10  # documents per script
WIDE: Final = "it is wider than the window"

# Write every document into the empty page, which keeps axe-core and the variable `looks`. Pass a list per document: its violations, whether
# it is as wide as the window, and whether its contrast was checked. The dark look is checked for contrast only. axe-core waits between its
# rules. Without these waits, the browser does not paint the documents.
AUDIT: Final = """
const [documents, look, done] = arguments;
const { numbers, shapes, entries } = ((window.looks ??= {})[look] ??= { numbers: new Map(), shapes: new Set(), entries: new Set() });
const number = (text) => numbers.get(text) ?? numbers.set(text, numbers.size).get(text);

const describe = ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ element }) => element.outerHTML).join(" ")}`;
const check = async (options) => {
    const { violations } = await axe.run({ ...options, resultTypes: ["violations"], elementRef: true, preload: false });
    return violations.map(describe);
};

// Remove the entries of the frame around the content that an earlier document had at the same place: axe-core takes long for them.
const opening = (element) => element.cloneNode().outerHTML;
const place = (element) => (element ? place(element.parentElement) + opening(element) : "");
const removeKnownEntries = () => {
    for (const entry of document.querySelectorAll("li:not(main *, li *)")) {
        const key = number(place(entry.parentElement) + entry.outerHTML);
        if (entries.has(key)) entry.remove();
        entries.add(key);
    }
};

// Contrast depends on the style sheets and on the shape: the elements from the root to an element, with their names and telling attributes.
const TELLING = new Set(["class", "type", "role", "aria-current", "aria-invalid"]);
const shapesOf = (element, parent, found = new Map()) => {
    const attributes = [...element.attributes].map(({ name, value }) => (TELLING.has(name) ? `${name}=${value}` : name)).sort();
    const shape = number([parent, element.localName, ...attributes, element.textContent.trim() !== ""].join(" "));
    found.set(element, shape);
    for (const child of element.children) shapesOf(child, shape, found);
    return found;
};
// Empty the elements without a new shape inside, and return whether the element has one.
const empty = (element, isNew) => {
    const hasNew = isNew(element) || [...element.children].map((child) => empty(child, isNew)).includes(true);
    if (!hasNew) element.replaceChildren();
    return hasNew;
};

const audit = async (text) => {
    document.open();
    document.write(text);
    document.close();
    document.getAnimations().forEach((animation) => animation.finish());  // during a transition, colors have too little contrast
    const isFitting = document.documentElement.scrollWidth <= document.documentElement.clientWidth;
    const styles = [...document.querySelectorAll("style")].map((style) => style.textContent);
    const found = shapesOf(document.body, number(styles.join()));
    const newShapes = new Set([...found.values()].filter((shape) => !shapes.has(shape)));
    newShapes.forEach((shape) => shapes.add(shape));
    const violations = [];
    if (look !== "dark") {
        removeKnownEntries();
        violations.push(...(await check({ rules: { "color-contrast": { enabled: false } } })));
    }
    if (newShapes.size) {
        empty(document.body, (element) => newShapes.has(found.get(element)));
        violations.push(...(await check({ runOnly: ["color-contrast"] })));
    }
    return [violations, isFitting, newShapes.size > 0];
};
(async () => {
    const { setTimeout } = window;
    window.setTimeout = (run, delay) => (delay ? setTimeout(run, delay) : queueMicrotask(run));
    try {
        const results = [];
        for (const text of documents) results.push(await audit(text));
        return results;
    } finally {
        window.setTimeout = setTimeout;
        document.open();
        document.close();
    }
})().then(done, (error) => done(String(error)));
"""
# Return per document whether it is as wide as the window.
FIT: Final = """
const results = [];
for (const text of arguments[0]) {
    document.open();
    document.write(text);
    document.close();
    results.push(document.documentElement.scrollWidth <= document.documentElement.clientWidth);
}
return results;
"""


def audit(browser: Browser, documents: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the findings by name and look: light, dark and phone. If screenshots are wanted, save every document's.

    The light look is checked against all rules, and the dark look for its contrast. In any look, a document that is
    wider than the window is a finding.
    """
    findings = _audit(browser, documents)
    if os.environ.get(SCREENSHOTS_VARIABLE):
        for name, text in documents.items():
            browser.show(text)
            browser.photograph_whole(name)
    return findings


def _audit(browser: Browser, documents: Mapping[str, str]) -> dict[str, list[str]]:
    browser.open("about:blank")
    browser.script(AXE.read_text("utf-8"))
    browser.script("axe.configure({ noHtml: true })")
    findings = dict[str, list[str]]()
    names = sorted(documents, key=lambda name: len(documents[name]), reverse=True)  # then fewer documents have new shapes
    colored = _audit_round(browser, "light", {name: documents[name] for name in names}, findings)
    with _dark(browser):
        _audit_round(browser, "dark", colored, findings)
    with browser.on_phone():
        for batch in _batches(names):
            fitting = browser.script(FIT, [documents[name] for name in batch])
            findings |= {f"{name}, phone": [WIDE] for name, is_fitting in zip(batch, fitting, strict=True) if not is_fitting}
    return findings


def audit_kept(browser: Browser) -> dict[str, list[str]]:
    """Return the findings about the pages that the test has kept, as `audit` does."""
    kept, browser.kept = browser.kept, {}
    assert kept, "the test has kept no page"
    return _audit(browser, kept)


def _audit_round(browser: Browser, look: str, documents: Mapping[str, str], findings: dict[str, list[str]]) -> dict[str, str]:
    """Add a look's findings. Return the documents in which contrast was checked."""
    colored = dict[str, str]()
    for batch in _batches(list(documents)):
        results = browser.wait_for_script(AUDIT, [documents[name] for name in batch], look)
        assert isinstance(results, list), results
        for name, (violations, is_fitting, is_colored) in zip(batch, results, strict=True):
            if found := [*violations, *([] if is_fitting else [WIDE])]:
                findings[f"{name}, {look}"] = found
            if is_colored:
                colored[name] = documents[name]
    return colored


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + BATCH] for start in range(0, len(names), BATCH))


@contextmanager
def _dark(browser: Browser) -> Iterator[None]:
    browser.use_dark(True)
    try:
        yield
    finally:
        browser.use_dark(False)
