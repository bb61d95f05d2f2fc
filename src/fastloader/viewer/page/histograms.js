// How labels, sizes and lengths are spread. A bar is a filter.

import { ask } from "./api.js";
import { Columns } from "./columns.js";
import { bytes, count, el, plain, short } from "./dom.js";
import { choice, isAll } from "./state.js";

export function histogramsPage(dataset, state, filterBy) {
  const abort = new AbortController();
  const order = (column) => (column.id.endsWith(".value") ? 0 : column.id.endsWith(".bytes") ? 2 : 1);
  const sorted = [...dataset.columns].sort((one, other) => order(one) - order(other));
  const panels = sorted.map((column) => {
    const body = el("div", { class: "chart waiting" });
    return { column, body, root: el("section", { class: "panel" }, el("h3", { text: plain(column.label) }), body) };
  });
  const whole = isAll(state) ? "of all samples" : "of the samples that were found";
  const root = el("div", { class: "histograms" },
    el("h2", { text: "Histograms" }), el("p", { class: "quiet", text: `${whole}; a click on a bar shows its samples` }));
  const laid = el("div");
  root.append(laid);
  let columns = null;
  const lay = () => {
    columns = new Columns(laid.clientWidth);
    laid.replaceChildren(columns.root);
    for (const panel of panels) if (panel.drawn) columns.add(panel.root);
  };
  window.addEventListener("resize", lay, { signal: abort.signal });
  if (!panels.length) root.append(el("p", { text: "There are no labels, sizes or lengths in this dataset." }));
  load(panels, dataset, state, filterBy, abort.signal, (panel) => {
    panel.drawn = true;
    columns?.add(panel.root);
  });
  return { root, lay, close: () => abort.abort() };
}

async function load(panels, dataset, state, filterBy, signal, add) {
  for (const panel of panels) {
    const { column, body } = panel;
    try {
      const told = await ask("histogram", choice(state, { column: column.id }), signal);
      body.className = "chart";
      body.replaceChildren(...chart(column, told, dataset, filterBy));
    } catch (error) {
      if (signal.aborted) return;
      body.className = "chart";
      body.replaceChildren(el("p", { class: "note bad", text: error.message }));
    }
    add(panel);
  }
}

function chart(column, told, dataset, filterBy) {
  const show = (number) => (column.unit === "B" ? bytes(number) : `${short(number)}${column.unit ? ` ${column.unit}` : ""}`);
  const most = Math.max(1, ...told.bars.map((bar) => bar.count));
  const parts = [told.form === "values" ? values(column, told, dataset, most, filterBy) : bins(column, told, most, show, filterBy)];
  const facts = [];
  if (told.min !== undefined) facts.push(`${show(told.min)} to ${show(told.max)}`, `median ${show(told.median)}`, `mean ${show(told.mean)}`);
  if (told.different > told.bars.length) facts.push(`${count(told.different)} different, ${count(told.others)} samples not drawn`);
  if (told.missing) facts.push(`${count(told.missing)} missing`);
  if (told.sampled) facts.push(`from ${count(told.counted)} of ${count(told.of)} samples, taken at random places`);
  parts.push(el("p", { class: "quiet", text: facts.join(" · ") }));
  return parts;
}

function values(column, told, dataset, most, filterBy) {
  if (!told.bars.length) return el("p", { class: "quiet", text: "no values" });
  const names = column.label === "label" ? dataset.classes : null;
  return el("div", { class: "labels" }, told.bars.map((bar) => {
    const name = names?.[bar.value] === undefined ? bar.text : `${bar.text} ${names[bar.value]}`;
    const fill = el("span", { class: "fill", style: { width: `${(100 * bar.count) / most}%` } });
    return el("button", {
      type: "button", disabled: bar.value === null, title: `${plain(name)}: ${count(bar.count)}`,
      onclick: () => filterBy([[column.id, "=", bar.value]]),
    }, el("span", { class: "label", text: plain(name) || "(empty)" }), el("span", { class: "track" }, fill), el("span", { class: "number", text: count(bar.count) }));
  }));
}

function bins(column, told, most, show, filterBy) {
  const bars = el("div", { class: "bins" }, told.bars.map((bar) => el("button", {
    type: "button", title: `${show(bar.low)} to ${show(bar.high)}: ${count(bar.count)}`,
    "aria-label": `${show(bar.low)} to ${show(bar.high)}: ${count(bar.count)}`,
    onclick: () => filterBy([[column.id, ">=", bar.low], [column.id, "<", bar.high]]),
  }, el("span", { class: "fill", style: { height: `${bar.count ? Math.max(1.5, (100 * bar.count) / most) : 0}%` } }))));
  const first = told.bars[0];
  const last = told.bars[told.bars.length - 1];
  return el("div", {}, bars, el("div", { class: "axis" }, el("span", { text: show(first.low) }), el("span", { text: show(last.high) })));
}
