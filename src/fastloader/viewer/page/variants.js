// What pipelines make of a sample, epoch by epoch, side by side.

import { ask, variantUrl } from "./api.js";
import { drawPlot, overlay } from "./draw.js";
import { el, plain } from "./dom.js";

export function variantsPanel(page) {
  const body = el("div", { class: "variants waiting" });
  const choose = el("select", { "aria-label": "Number of variants", onchange: () => load(page, Number(choose.value), body) },
    [4, 8, 16, 32].map((number) => el("option", { value: number, text: `${number} epochs`, selected: number === 8 })));
  load(page, 8, body);
  return el("section", { class: "panel", id: "variants" },
    el("h3", {}, el("span", { text: "Augmented" }), el("span", { class: "quiet", text: "what a DataLoader with these pipelines and seed 0 gives in each epoch" }), choose),
    body);
}

async function load(page, epochs, body) {
  body.className = "variants waiting";
  try {
    const told = await ask(`variants/${page.told.index}`, new URLSearchParams({ epochs }), page.signal);
    body.className = "variants";
    body.replaceChildren(...told.map((fields, epoch) => variant(page, fields, epoch)));
  } catch (error) {
    if (page.signal.aborted) return;
    body.className = "variants";
    body.replaceChildren(el("p", { class: "note bad", text: error.message }));
  }
}

function variant(page, fields, epoch) {
  const boxes = Object.values(fields).filter((value) => value.kind === "boxes");
  const parts = Object.entries(fields).flatMap(([name, value]) => {
    if (value.kind === "boxes") return [];
    const shape = value.shape ? `${value.dtype} [${value.shape.join(", ")}]${value.stretched ? ", shown from least to most" : ""}` : "";
    const about = el("figcaption", {}, el("b", { text: plain(name) }), ` ${shape}`);
    return [el("figure", {}, shown(page, name, value, epoch, boxes), about)];
  });
  return el("div", { class: "variant" }, el("h4", { text: `epoch ${epoch}` }), parts);
}

function shown(page, name, value, epoch, boxes) {
  const index = page.told.index;
  if (value.kind === "picture") {
    const image = el("img", { alt: "", src: variantUrl(index, epoch, name) });
    const box = el("div", { class: value.count > 1 ? "strip" : "framed" }, image);
    if (value.count === 1 && boxes.length && page.view.over) {
      image.addEventListener("load", () => box.append(overlay(image.naturalWidth, image.naturalHeight, boxes, false)));
    }
    return box;
  }
  if (value.kind === "array") {
    const canvas = el("canvas", { class: "plot" });
    ask(`variant-plot/${index}/${epoch}`, new URLSearchParams({ name }), page.signal).then(
      (found) => drawPlot(canvas, found), (error) => page.signal.aborted || canvas.replaceWith(el("p", { class: "note", text: error.message })));
    return canvas;
  }
  return el("pre", { class: "prose", text: value.text });
}
