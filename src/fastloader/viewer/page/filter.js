// The dialog that adds a filter.

import { $, el, plain } from "./dom.js";

const NUMBERS = [["=", "equal to"], ["between", "between"], [">=", "at least"], ["<=", "at most"], ["!=", "other than"], ["missing", "missing"]];
const TEXTS = [["=", "equal to"], ["contains", "holding"], ["!=", "other than"], ["missing", "missing"]];

export class FilterDialog {
  constructor(dataset, add) {
    this.columns = new Map(dataset.columns.map((column) => [column.id, column]));
    this.add = add;
    $("filter-column").append(...dataset.columns.map((column) => el("option", { value: column.id, text: plain(column.label) })));
    $("filter-column").addEventListener("change", () => this.column());
    $("filter-operation").addEventListener("change", () => this.operation());
    $("filter-cancel").addEventListener("click", () => $("filter-dialog").close());
    $("filter-form").addEventListener("submit", (event) => this.apply(event));
    if (!dataset.columns.length) $("filter").disabled = true;
  }

  open() {
    if (!this.columns.size) return;
    const value = [...this.columns.values()].find((column) => column.id.endsWith(".value") && column.kind === "number");
    if (value && !this.chosen) $("filter-column").value = value.id;
    this.column();
    $("filter-dialog").showModal();
    $("filter-value").focus();
  }

  column() {
    const column = this.columns.get($("filter-column").value);
    this.chosen = column;
    const known = column.kind === "text" ? TEXTS : NUMBERS;
    $("filter-operation").replaceChildren(...known.map(([value, text]) => el("option", { value, text })));
    $("filter-note").textContent = column.quick ? "" : "Every value has to be read for this, which takes a while.";
    this.operation();
  }

  operation() {
    const operation = $("filter-operation").value;
    $("filter-value-box").hidden = operation === "missing";
    $("filter-to-box").hidden = operation !== "between";
    $("filter-value").inputMode = $("filter-to").inputMode = this.chosen.kind === "text" ? "text" : "decimal";
  }

  apply(event) {
    event.preventDefault();
    const operation = $("filter-operation").value;
    const wanted = operation === "between" ? [[">=", $("filter-value").value], ["<=", $("filter-to").value]] : [[operation, $("filter-value").value]];
    const made = [];
    for (const [sign, text] of wanted) {
      if (sign !== "missing" && this.chosen.kind === "number" && !(text.trim() && Number.isFinite(Number(text)))) {
        $("filter-note").textContent = `“${text}” is no number`;
        return;
      }
      made.push([this.chosen.id, sign, sign === "missing" ? null : this.chosen.kind === "number" ? text.trim() : text]);
    }
    $("filter-dialog").close();
    this.add(made);
  }
}

const SIGNS = { "=": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥", contains: "holds", missing: "is missing" };

export function tellCondition([id, sign, value], columns) {
  const column = columns.find((one) => one.id === id);
  const name = column ? plain(column.label) : id;
  return `${name} ${SIGNS[sign] ?? sign}${value === null ? "" : ` ${plain(value)}`}`;
}
