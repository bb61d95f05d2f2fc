// A sample in the grid: what is most telling of it, and a few words below.

import { peaks, pictureUrl, plot, stripUrl } from "./api.js";
import { drawPeaks, drawPlot, overlay } from "./draw.js";
import { bytes, count, duration, el, plain, short } from "./dom.js";

const PICTURES = new Set(["image", "mask", "video", "frames", "flow"]);
const PLOTS = new Set(["array", "spectrogram"]);
const TOLD = new Set(["text", "json", "tokens"]);
const RANKS = [
  "image", "animation", "video", "frames", "mask", "flow", "spectrogram", "sound", "points", "boxes", "text", "json",
  "tokens", "packed", "value", "array", "bytes", "number",
];

// The field that stands for a sample unless another is chosen.
export function bestField(fields) {
  const rank = (field) => (field.name === "__key__" ? 99 : RANKS.indexOf(field.kind) + 1 || 50);
  return [...fields].sort((one, other) => rank(one) - rank(other))[0] ?? null;
}

// A picture is asked for in steps of size, so that a card that grows a little needs no new one.
export function room(width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const step = (side) => Math.min(Math.ceil((side * scale) / 64) * 64, 1024);
  return { height: step(height), width: step(width) };
}

export class Card {
  constructor(number) {
    this.stage = el("div", { class: "stage" });
    this.name = el("span", { class: "name" });
    this.words = el("span", { class: "words" });
    this.root = el("a", { class: "card", role: "option", id: `card-${number}`, draggable: false, tabIndex: -1 },
      this.stage, el("div", { class: "caption" }, this.name, this.words));
    this.position = -1;
    this.abort = null;
  }

  // Ready for another sample; what is still on its way is given up.
  clear() {
    this.abort?.abort();
    this.abort = null;
    for (const image of this.stage.querySelectorAll("img")) image.removeAttribute("src");
    this.stage.replaceChildren();
    this.stage.className = "stage waiting";
    this.name.textContent = "";
    this.words.textContent = "";
    this.root.removeAttribute("href");
    this.data = null;
  }

  fill(data, view) {
    this.abort?.abort();
    this.abort = new AbortController();
    this.data = data;
    this.root.href = view.link(data.index);
    this.root.setAttribute("aria-label", `Sample ${data.index}${data.key === null ? "" : `, ${plain(data.key)}`}`);
    this.name.textContent = data.key === null ? `#${count(data.index)}` : plain(data.key);
    this.name.title = data.key === null ? "" : `#${count(data.index)} ${plain(data.key)}`;
    this.words.textContent = words(data, view);
    const { hero, value } = chosen(data, view);
    this.stage.className = `stage ${value.kind}`;
    this.stage.replaceChildren(...this.parts(data.index, hero, value, view));
  }

  parts(index, hero, value, view) {
    if (value.kind === "error") return [el("div", { class: "note bad", text: value.text })];
    if (value.kind === "missing") return [el("div", { class: "note", text: "missing" })];
    if (value.kind === "animation") return [this.image(`/api/file/${index}/${hero.number}`, view)];
    if (value.kind === "video" && value.frames === undefined) return [el("div", { class: "note", text: "video" })];
    if (PICTURES.has(value.kind)) return this.picture(index, hero, value, view);
    if (value.kind === "sound") return this.sound(index, hero, value);
    if (PLOTS.has(value.kind)) {
      const canvas = el("canvas");
      this.draw(plot(index, hero.number, this.abort.signal), (told) => drawPlot(canvas, told));
      return [canvas];
    }
    return [el("div", { class: "text", text: told(value) })];
  }

  picture(index, hero, value, view) {
    const params = { ...room(view.width, view.height), ...(view.crop ? { crop: 1 } : {}) };
    const parts = [this.image(pictureUrl(index, hero.number, params), view)];
    if (value.kind === "image" && view.over) parts.push(...overlays(index, this.data, value, view, params));
    if (value.frames !== undefined) {
      parts.push(el("span", { class: "badge", text: `▶ ${duration(value.seconds)}` }));
      this.motion(index, hero, view);
    }
    return parts;
  }

  image(source, view) {
    const image = el("img", { alt: "", decoding: "async", draggable: false, class: view.crop ? "crop" : "whole" });
    image.addEventListener("error", () => {
      if (image.isConnected && image.hasAttribute("src")) {
        this.stage.replaceChildren(el("div", { class: "note bad", text: "can't be shown; open it to see why" }));
      }
    });
    image.src = source;
    return image;
  }

  // Frames pass by while the pointer rests on a video.
  motion(index, hero, view) {
    const signal = this.abort.signal;
    const start = () => {
      const frames = 12;
      const source = stripUrl(index, hero.number, { ...room(view.width, view.height), frames });
      const strip = new Image();
      strip.onload = () => {
        if (signal.aborted || !this.root.matches(":hover")) return;
        const canvas = el("canvas", { class: `motion ${view.crop ? "crop" : "whole"}` });
        canvas.width = strip.naturalWidth / frames;
        canvas.height = strip.naturalHeight;
        this.stage.append(canvas);
        let frame = 0;
        const timer = setInterval(() => {
          if (signal.aborted || !this.root.matches(":hover")) {
            clearInterval(timer);
            canvas.remove();
            return;
          }
          canvas.getContext("2d").drawImage(strip, -canvas.width * (frame++ % frames), 0);
        }, 110);
      };
      strip.src = source;
    };
    this.root.addEventListener("pointerenter", start, { signal });
  }

  sound(index, hero, value) {
    const canvas = el("canvas");
    const buckets = Math.max(32, Math.min(160, Math.round((this.stage.clientWidth || 180) / 3)));
    this.draw(peaks(index, hero.number, buckets, this.abort.signal), (found) => drawPeaks(canvas, found));
    return [canvas, el("span", { class: "badge play", title: "Play (Space)", text: value.seconds === undefined ? "♪" : `♪ ${duration(value.seconds)}` })];
  }

  draw(asked, paint) {
    const signal = this.abort.signal;
    asked.then(
      (found) => signal.aborted || paint(found),
      (error) => signal.aborted || this.stage.replaceChildren(el("div", { class: "note bad", text: error.message })),
    );
  }
}

// What stands for a sample: where the field is missing and nobody asked for it, another one.
function chosen(data, view) {
  const missing = { kind: "missing" };
  const value = view.hero === null ? missing : data.fields[view.hero.number] ?? missing;
  if (value.kind !== "missing" || !view.auto) return { hero: view.hero, value };
  const there = view.fields.filter((field) => (data.fields[field.number] ?? missing).kind !== "missing");
  const hero = bestField(there) ?? view.hero;
  return { hero, value: hero === null ? missing : data.fields[hero.number] ?? missing };
}

// Boxes, points and masks over a picture.
export function overlays(index, data, value, view, params) {
  const layers = [];
  const parts = [];
  for (const field of view.fields) {
    const other = data.fields[field.number];
    if (!other) continue;
    if (other.kind === "boxes" || other.kind === "points") layers.push(other);
    if (other.kind === "mask") {
      const source = pictureUrl(index, field.number, { ...params, overlay: 1 });
      parts.push(el("img", { class: `mask ${view.crop ? "crop" : "whole"}`, alt: "", src: source, draggable: false }));
    }
  }
  if (layers.length) parts.push(overlay(value.width, value.height, layers, view.crop, view.names?.(layers) ?? []));
  return parts;
}

function told(value) {
  if (value.kind === "number") return value.text;
  if (value.kind === "tokens" || value.kind === "packed") return value.text ?? value.tokens.join(" ");
  if (value.kind === "boxes") return `${value.count} box${value.count === 1 ? "" : "es"}`;
  if (value.kind === "points") return `${value.count} × points`;
  if (value.kind === "bytes") return value.hex;
  return value.text ?? "";
}

// Numbers by name, and the beginning of a text.
function words(data, view) {
  const numbers = [];
  const texts = [];
  for (const field of view.fields) {
    const value = data.fields[field.number];
    if (!value || field === view.hero || field.name === "__key__") continue;
    if (view.archive && (field.name === "mode" || field.name === "mtime")) continue;
    if (value.kind === "number" && numbers.length < 2) numbers.push(`${plain(field.name)} ${className(field, value, view)}`);
    if (!TOLD.has(value.kind) || !value.text || value.text === data.key || texts.length) continue;
    texts.push(plain(value.kind === "json" ? value.text.replace(/[[\]{}"]/g, "") : value.text).slice(0, 90));
  }
  return [...numbers, ...texts].join(" · ");
}

// A number as people read it: with the name of its class, and what file systems mean by theirs.
export function className(field, value, view, text = Number.isInteger(value.value) ? value.text : short(value.value ?? value.text)) {
  if (view.archive && field.name === "size") return bytes(value.value);
  if (view.archive && field.name === "mode") return (value.value & 0o7777).toString(8).padStart(4, "0");
  if (view.archive && field.name === "mtime") return new Date(Number(BigInt(value.text) / 1000000n)).toISOString();
  const name = field.name === "label" ? view.classes?.[value.value] : undefined;
  return name === undefined ? text : `${text} (${plain(name)})`;
}
