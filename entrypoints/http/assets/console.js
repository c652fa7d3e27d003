// Makes the console quicker: local times, keys for the search, copy buttons, filters without a click, and files into text areas. Every page
// works without it.
"use strict";

for (const code of document.querySelectorAll(".copy dd > code, .curl code, code.copied, code.secret, code[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link copy-button";
  const label = code.dataset.copy || "Copy";
  button.textContent = label;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
  if (code.dataset.copy) code.parentElement.before(button);
  else code.after(" ", button);
}

// <ul data-copies="Copy all codes" data-downloads="Download" data-heading="Codes"> gets buttons that copy its lines and save them as a file.
for (const list of document.querySelectorAll("[data-copies]")) {
  const lines = [...list.children].map((item) => item.textContent.trim());
  const buttons = document.createElement("p");
  buttons.className = "buttons";
  const add = (label, act) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button-quiet";
    button.textContent = label;
    button.addEventListener("click", () => act(button));
    buttons.append(button);
  };
  add(list.dataset.copies, async (button) => {
    await navigator.clipboard.writeText(lines.join("\n"));
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = list.dataset.copies; }, 2000);
  });
  add(list.dataset.downloads, () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([[list.dataset.heading, "", ...lines, ""].join("\r\n")], { type: "text/plain" }));
    link.download = "backup-codes.txt";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  list.after(buttons);
}

// The title of a time is exact. Here it gets the time zone of the user's profile, or else that of the browser.
const format = (timeZone) => new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long", timeZone });
let exact = format();
try {
  exact = format(document.body.dataset.timeZone);
} catch {} // a zone that this browser does not know
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
    if (!slash && !(event.key?.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey)) return;
    event.preventDefault();
    if (field.checkVisibility()) field.select();
    else location.assign(document.querySelector(".finder-link").href);
  });
}

// On a phone, the tabs scroll. The current one is in view.
const tab = document.querySelector(".tabs [aria-current]");
if (tab) tab.closest(".tabs").scrollLeft = tab.offsetLeft - tab.closest(".tabs").offsetLeft;

// A new application waits for its first sign-in: every 3 seconds for two minutes, then every 15, for half an hour. It also looks when the
// user comes back to the page.
const waiting = document.querySelector("[data-polls]");
if (waiting) {
  const since = Date.now();
  let timer;
  const check = async () => {
    clearTimeout(timer);
    if (!document.hidden) {
      const response = await fetch(waiting.dataset.polls).catch(() => null);
      const page = document.createElement("template"); // a parsed document would apply its styles, which the policy forbids
      page.innerHTML = response?.ok ? await response.text() : "";
      const used = page.content.querySelector("#activity.notice-good");
      if (used) {
        waiting.replaceWith(used);
        document.removeEventListener("visibilitychange", check);
        return;
      }
    }
    const age = Date.now() - since;
    if (age < 1800000) timer = setTimeout(check, age < 120000 ? 3000 : 15000);
  };
  document.addEventListener("visibilitychange", check);
  timer = setTimeout(check, 3000);
}

// <form data-stored="settings"> acts on the stored values of the form #settings. It waits until changes there are saved.
for (const form of document.querySelectorAll("form[data-stored]")) {
  document.getElementById(form.dataset.stored).addEventListener("input", () => {
    form.querySelector(".button").hidden = true;
    form.querySelector(".hint").hidden = false;
  });
}

// A preset checks boxes in place, and "All of them" those of its area. An event that needs a choice of its own is in a [data-alone].
for (const link of document.querySelectorAll("a[data-checks]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const names = new Set(link.dataset.checks.split(" "));
    for (const box of link.closest("fieldset").querySelectorAll("input[type=checkbox]")) box.checked = names.has(box.name);
  });
}
for (const all of document.querySelectorAll("input[name^='all-of:']")) {
  const boxes = [...all.closest("details").querySelectorAll("input[type=checkbox]")].filter((box) => box !== all && !box.closest("[data-alone]"));
  const copy = () => { for (const box of boxes) box.checked = all.checked; };
  if (all.checked) copy();
  all.addEventListener("change", copy);
  for (const box of boxes) box.addEventListener("change", () => { all.checked = boxes.every((each) => each.checked); });
  all.form.addEventListener("formdata", (event) => {
    for (const box of all.checked ? boxes : []) event.formData.delete(box.name);
  });
}

for (const select of document.querySelectorAll("select[data-submits]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

// <form data-selects="50"> gets a checkbox in the head of its table, which selects all rows. Each action waits for a selection of at most
// 50 of its rows, and sends only these.
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
    for (const button of form.querySelectorAll(".bulk button")) {
      const own = boxes.filter((box) => box.checked && box.name.startsWith(button.dataset.prefix)).length;
      button.disabled = !own || own > form.dataset.selects;
      button.title = own > form.dataset.selects ? `Select at most ${form.dataset.selects}` : "";
    }
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    update();
  });
  form.addEventListener("change", update);
  let prefix = "";
  form.addEventListener("submit", (event) => (prefix = event.submitter?.dataset.prefix ?? ""));
  form.addEventListener("formdata", (event) => {
    for (const box of boxes) if (!box.name.startsWith(prefix)) event.formData.delete(box.name);
  });
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
    const url = URL.canParse(line.trim()) ? new URL(line.trim()) : null;
    return url && (url.origin === "null" ? `${url.protocol}/` : `${url.origin}/`);
  };
  area.addEventListener("input", () => { proposed.value = "yes"; });
  source.addEventListener("input", () => {
    if (!proposed.value) area.value = [...new Set(source.value.split("\n").map(start))].filter(Boolean).join("\n");
  });
}

// A file that is too large is refused before it is sent.
for (const input of document.querySelectorAll("input[type=file][data-limit]")) {
  input.addEventListener("change", () => {
    const file = input.files[0];
    input.setCustomValidity(file?.size > Number(input.dataset.limit) ? `This file has ${Math.ceil(file.size / 1000)} KB. Choose one of at most ${input.dataset.limit / 1000} KB.` : "");
    input.reportValidity();
  });
}
