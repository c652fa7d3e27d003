// Makes the console quicker: local times, keys for the search, copy buttons, filters without a click, and files into text areas. Every page
// works without it.
"use strict";

for (const code of document.querySelectorAll(".copy dd > code, .curl code, code.secret")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link copy-button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.after(" ", button);
}

// The title of a time is exact. Here it gets the time zone of the browser.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
for (const time of document.querySelectorAll("time[title]")) {
  time.title = exact.format(new Date(time.dateTime));
}

// Ctrl-K and / lead to the search: to its field, or on a phone to its page.
const field = document.querySelector(".finder input");
if (field) {
  const hint = document.createElement("kbd");
  hint.textContent = "/";
  hint.setAttribute("aria-hidden", "true");
  field.after(hint);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!slash && !(event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey)) return;
    event.preventDefault();
    if (field.checkVisibility()) field.select();
    else location.assign(document.querySelector(".finder-link").href);
  });
}

for (const select of document.querySelectorAll("select[data-submits]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

// <form data-selects> gets a checkbox in the head of its table, which selects all rows. Its actions wait for a selection.
for (const form of document.querySelectorAll("form[data-selects]")) {
  const all = document.createElement("input");
  all.type = "checkbox";
  all.setAttribute("aria-label", "Select all on this page");
  form.querySelector("th.select").append(all);
  const boxes = [...form.querySelectorAll("td.select input")];
  const update = () => {
    const chosen = boxes.filter((box) => box.checked).length;
    all.checked = chosen === boxes.length;
    all.indeterminate = chosen > 0 && !all.checked;
    for (const button of form.querySelectorAll(".bulk button")) button.disabled = !chosen;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    update();
  });
  form.addEventListener("change", update);
  addEventListener("pageshow", update);
}

// After a change, screen readers read the message about it first.
document.querySelector(".notice-good")?.focus({ preventScroll: true });

// A menu closes when the user goes elsewhere.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.drop[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector("details.drop[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// <textarea data-reads=".csv,text/csv"> gets a button that reads a file into it. The file stays in the browser until the form is sent.
for (const area of document.querySelectorAll("textarea[data-reads]")) {
  const input = document.createElement("input");
  input.type = "file";
  input.accept = area.dataset.reads;
  input.setAttribute("aria-label", "Read a file into the field above");
  input.addEventListener("change", async () => {
    if (input.files[0]) area.value = await input.files[0].text();
  });
  area.after(input);
}

// <textarea data-starts-of="redirect_uris"> proposes the start pages of the addresses in that field, until the user changes it.
for (const area of document.querySelectorAll("textarea[data-starts-of]")) {
  const source = area.form.elements[area.dataset.startsOf];
  const proposed = area.form.elements.proposed;
  const start = (line) => {
    const url = URL.parse(line.trim());
    return url && (url.origin === "null" ? `${url.protocol}/` : `${url.origin}/`);
  };
  area.addEventListener("input", () => { proposed.value = "yes"; });
  source.addEventListener("input", () => {
    if (!proposed.value) area.value = [...new Set(source.value.split("\n").map(start))].filter(Boolean).join("\n");
  });
}
