// Keeps the preview of the branding up to date while the user types. The colors are derived as in core/tenancy/model/settings.py. Without it,
// the button "Preview" shows the same.
"use strict";

const branding = document.querySelector("form[data-previews]");
const steps = 40, black = [0, 0, 0], white = [255, 255, 255];
const parse = (text) => text.match(/^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i)?.slice(1).map((part) => parseInt(part, 16));
const print = (color) => `#${color.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
const luminance = (color) => color.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const contrast = (one, other) => {
  const [darker, brighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (brighter + 0.05) / (darker + 0.05);
};
const mix = (color, other, count) => color.map((part, index) => Math.round(part + (other[index] - part) * count / steps));
const derive = (color, background, pole) => {
  let count = 0;
  while (count < steps && contrast(mix(color, pole, count), background) < 4.5) count += 1;
  const accent = mix(color, pole, count);
  return { accent, button: color, label: contrast(white, color) >= 4.5 ? white : black, edge: contrast(color, background) >= 3 ? color : accent };
};
const own = { light: ["#0b5d66", "#0b5d66", "#fff"], dark: ["#6cc9d2", "#6cc9d2", "#06262a"] }; // of pages.css: accent, button, label
const looks = [["light", "#f2f5f6", black], ["dark", "#172024", white]]
  .map(([name, background, pole]) => [document.querySelector(`.look-${name}`), parse(background), pole, own[name]]);
const colorField = branding.elements.primary_color;
const picker = document.createElement("input");
picker.type = "color";
picker.setAttribute("aria-label", "Pick a color");
const row = document.createElement("div");
row.className = "with-picker";
colorField.before(row);
row.append(colorField, picker);
const update = () => {
  const text = colorField.value.trim();
  const color = parse(text || "#0b5d66");
  if (color) {
    picker.value = print(color);
    for (const [look, background, pole, [accent, button, label]] of looks) {
      const colors = text ? derive(color, background, pole) : { accent, button, label, edge: "transparent" };
      for (const [name, value] of Object.entries(colors)) look.style.setProperty(`--${name}`, typeof value === "string" ? value : print(value));
    }
  }
  const name = branding.elements.product_name.value.trim() || branding.dataset.previews;
  for (const each of document.querySelectorAll(".look-brand")) {
    each.querySelector("bdi").textContent = name;
    const initial = each.querySelector(".initial");
    if (initial) initial.textContent = [...name][0].toUpperCase();
  }
};
const change = () => {
  update();
  document.getElementById("look-state").textContent = "This isn't saved yet.";
};
picker.addEventListener("input", () => { colorField.value = picker.value; change(); });
branding.addEventListener("input", (event) => { if (event.target !== picker) change(); });
update();
document.querySelector(".upload input[type=file]").addEventListener("change", (event) => {
  const file = event.target.files[0];
  if (!file || !event.target.checkValidity()) return;
  const reader = new FileReader();
  reader.addEventListener("load", () => {
    for (const each of document.querySelectorAll(".look-brand")) {
      const logo = document.createElement("img");
      logo.className = "logo";
      logo.alt = "";
      logo.src = reader.result;
      each.firstElementChild.replaceWith(logo);
    }
    document.getElementById("look-state").textContent = "The logo isn't uploaded yet.";
  });
  reader.readAsDataURL(file);
});
