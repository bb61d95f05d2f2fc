// Elements, made without ever parsing text as HTML: what a dataset holds is only ever text.

export const $ = (id) => document.getElementById(id);

export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  set(made, props);
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function set(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value);
  }
}

const whole = new Intl.NumberFormat("en");
export const count = (number) => whole.format(number);

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (size < 1024 || unit === "TiB") return `${size.toFixed(size < 10 ? 2 : 1)} ${unit}`;
  }
}

export function short(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) return String(number);
  if (Number.isInteger(number) && Math.abs(number) < 1e15) return count(number);
  return Number(number.toPrecision(5)).toString();
}

export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const rounded = Math.round(seconds);
  return `${Math.floor(rounded / 60)}:${String(rounded % 60).padStart(2, "0")} min`;
}

// Control and direction characters, spelled out: they could make a name look like another.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
export const plain = (text) =>
  String(text).replace(INVISIBLE, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function toast(text) {
  const box = $("toast");
  box.textContent = text;
  box.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => box.classList.remove("on"), 2500);
}
