// Buttons that copy code. Without scripts, the pages are the same without them.
"use strict";

// The interactive API page was at /docs before, and its links are like /docs#/invitations/invitations_invite.
if (location.hash.startsWith("#/")) location.replace(`/docs/api${location.hash}`);

for (const block of document.querySelectorAll("article pre")) {
  const frame = document.createElement("div");
  frame.className = "code";
  block.replaceWith(frame);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  frame.append(block, button);
}
