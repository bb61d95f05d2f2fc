// JSON as a tree that opens and closes. Branches are made when they are opened.

import { count, el } from "./dom.js";

const OPEN = 40;

export function tree(value, depth = 0, name = null) {
  const head = name === null ? [] : [el("span", { class: "tree-name", text: name }), ": "];
  if (value === null || typeof value !== "object") {
    return el("div", { class: "tree-leaf" }, head, leaf(value));
  }
  const entries = Array.isArray(value) ? value.map((one, i) => [String(i), one]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return el("div", { class: "tree-leaf" }, head, `${open}${close}`);
  const about = el("span", { class: "tree-count", text: `${open} ${count(entries.length)} ${close}` });
  const branch = el("details", { class: "tree" }, el("summary", {}, head, about));
  const fill = () => {
    if (branch.childElementCount > 1) return;
    branch.append(...entries.map(([key, one]) => tree(one, depth + 1, key)));
  };
  branch.addEventListener("toggle", () => branch.open && fill());
  if (depth < 2 && entries.length <= OPEN) {
    fill();
    branch.open = true;
  }
  return branch;
}

function leaf(value) {
  const kind = value === null ? "null" : typeof value;
  return el("span", { class: `tree-${kind}`, text: kind === "string" ? JSON.stringify(value) : String(value) });
}
