// A sample with all it holds.

import { ask, fileUrl, peaks, pictureUrl, plot, stripUrl } from "./api.js";
import { bestField, className, overlays } from "./card.js";
import { drawPeaks, drawPlot } from "./draw.js";
import { bytes, count, duration, el, plain, short } from "./dom.js";
import { Columns } from "./columns.js";
import { tree } from "./tree.js";
import { variantsPanel } from "./variants.js";

const WIDE = new Set(["image", "video", "frames", "animation"]);

export function samplePage(dataset, told, view, go) {
  const abort = new AbortController();
  const page = { abort, signal: abort.signal, dataset, told, view };
  const hero = view.hero ?? bestField(dataset.fields);
  const fields = dataset.fields.filter((field) => field.name !== "__key__");
  fields.sort((one, other) => (other === hero) - (one === hero));
  const stored = Object.values(told.fields).reduce((sum, value) => sum + (value.place?.stored ?? 0), 0);
  const file = Object.values(told.fields).find((value) => value.place?.file)?.place;
  const state = el("span", { class: "state", id: "state", text: "not checked yet" });
  const check = el("button", { type: "button", id: "check", text: "Check", title: "Compare with the checksums (V)", onclick: () => page.check() });
  const panels = new Map(fields.map((field) => [field.number, panel(page, field, told.fields[field.number], field === hero)]));
  const root = el("article", { class: "sample" },
    el("header", { class: "sample-bar" },
      el("button", { type: "button", id: "back", text: "‹ All samples", title: "Back (Esc)", onclick: () => go.back() }),
      el("h2", {}, el("span", { class: "number", text: `#${count(told.index)}` }), told.key === null ? null : el("span", { class: "key", text: plain(told.key) })),
      el("span", { class: "space" }),
      el("span", { class: "quiet", text: `${count(told.position + 1)} of ${count(told.found)}` }),
      el("button", { type: "button", id: "before", text: "←", title: "Sample before (←)", disabled: told.before === null, onclick: () => go.to(told.before) }),
      el("button", { type: "button", id: "after", text: "→", title: "Next sample (→)", disabled: told.after === null, onclick: () => go.to(told.after) }),
      el("button", { type: "button", id: "link", text: "Copy link", title: "A link to what is shown (L)", onclick: () => go.copy() }),
      el("button", { type: "button", id: "present", text: "Present", title: "On the whole screen (P)", onclick: () => go.present() })),
    el("p", { class: "facts" },
      ...(stored ? [el("span", { text: `${bytes(stored)} stored` })] : []),
      ...(file ? [el("span", { class: "path", text: `${plain(file.file)}, row ${count(file.row)}` })] : []),
      el("span", {}, state, " ", check)));
  const laid = el("div");
  root.append(laid);
  // How tall panels are is known once the page stands.
  const lay = () => {
    const columns = new Columns(laid.clientWidth, hero !== null && WIDE.has(told.fields[hero.number].kind));
    laid.replaceChildren(columns.root);
    for (const one of panels.values()) columns.add(one.root);
  };
  if (dataset.variants) root.append(variantsPanel(page));

  page.check = async () => {
    state.textContent = "checking …";
    state.className = "state";
    try {
      const found = await ask(`check/${told.index}`, null, abort.signal);
      for (const one of found) panels.get(one.field)?.checked(one);
      const bad = found.filter((one) => one.state === "bad");
      const known = found.some((one) => one.state === "good");
      state.className = `state ${bad.length ? "bad" : known ? "good" : ""}`;
      state.textContent = bad.length ? `damaged: ${bad.map((one) => plain(dataset.fields[one.field].name)).join(", ")}`
        : known ? "intact: all bytes match their checksums" : "readable; the format has no checksums";
    } catch (error) {
      if (!abort.signal.aborted) state.textContent = error.message;
    }
  };
  const play = () => {
    const media = root.querySelector("audio, video");
    if (media) media.paused ? media.play() : media.pause();
    else root.querySelector(".player button")?.click();
  };
  window.addEventListener("resize", lay, { signal: abort.signal });
  return { root, lay, close: () => abort.abort(), check: page.check, play };
}

function panel(page, field, value, isHero) {
  const badge = el("span", { class: "state" });
  const wide = isHero && WIDE.has(value.kind);
  const root = el("section", { class: `panel field ${value.kind}${wide ? " hero" : ""}`, "data-field": field.name },
    el("h3", {}, el("span", { text: plain(field.name) }), el("span", { class: "quiet", text: facts(value) }), badge),
    el("div", { class: "body" }, body(page, field, value)),
    about(page, field, value));
  return {
    root,
    checked: (told) => {
      badge.className = `state ${told.state === "none" ? "" : told.state}`;
      badge.textContent = told.state === "good" ? "✓ intact" : told.state === "bad" ? "✗ damaged" : "–";
      badge.title = told.text;
      if (told.state === "bad") root.append(el("p", { class: "note bad", text: told.text }));
    },
  };
}

export function facts(value) {
  const parts = [];
  if (value.height !== undefined) parts.push(`${value.width} × ${value.height}${value.channels === undefined || value.channels === 3 ? "" : ` × ${value.channels}`}`);
  if (value.frames !== undefined) parts.push(`${count(value.frames)} frames`);
  if (value.seconds !== undefined) parts.push(duration(value.seconds));
  if (value.sample_rate !== undefined) parts.push(`${count(value.sample_rate)} Hz`, ...(value.channels ? [value.channels === 1 ? "mono" : value.channels === 2 ? "stereo" : `${value.channels} channels`] : []));
  if (value.codec !== undefined) parts.push(value.codec);
  if (value.height === undefined && value.shape !== undefined) parts.push(`${value.dtype} [${value.shape.join(", ")}]`);
  if (value.kind === "boxes" || value.kind === "points") parts.push(`${count(value.count)}`);
  if (value.length !== undefined && value.kind === "text") parts.push(`${count(value.length)} characters`);
  if (value.kind === "tokens" || value.kind === "packed") parts.push(`${count(value.count)} tokens`);
  if (value.documents !== undefined) parts.push(`${count(value.documents)} documents`);
  if (value.elements !== undefined) parts.push(`${count(value.elements)} elements`);
  if (value.place?.bytes !== undefined) parts.push(bytes(value.place.bytes));
  return parts.map(plain).join(" · ");
}

function about(page, field, value) {
  const place = value.place ?? {};
  const rows = [["type", field.type]];
  if (place.file) rows.push(["file", place.file], ["row", count(place.row)]);
  if (place.offset !== undefined) rows.push(["bytes", `${count(place.offset)} to ${count(place.offset + place.stored)}, ${bytes(place.stored)} stored, ${bytes(place.bytes)} read`]);
  if (place.crc32c) rows.push(["crc32c", place.crc32c]);
  const list = el("dl", {}, rows.map(([name, text]) => [el("dt", { text: name }), el("dd", { text: plain(text) })]));
  const save = place.offset === undefined && value.kind !== "sound" ? null
    : el("a", { class: "save", href: fileUrl(page.told.index, field.number), download: "", text: "Save as it is stored" });
  return el("details", { class: "about" }, el("summary", { text: "stored" }), list, save);
}

function body(page, field, value) {
  const { told, view } = page;
  const index = told.index;
  switch (value.kind) {
    case "missing": return el("p", { class: "note", text: "missing" });
    case "error": return el("p", { class: "note bad", text: value.text });
    case "number": return el("p", { class: "big", text: className(field, value, view, value.text) });
    case "text": return textBody(value);
    case "json": return [tree(value.value), value.more ? el("p", { class: "quiet", text: "… and more, which is not shown" }) : null];
    case "image": return imageBody(page, field, value);
    case "animation": return el("div", { class: "picture" }, failing(el("img", { alt: "", src: fileUrl(index, field.number) })));
    case "mask": case "flow": return el("div", { class: "picture" }, failing(el("img", { class: "pixels", alt: "", src: pictureUrl(index, field.number, {}), width: value.width ?? value.shape?.at(-2), height: value.height ?? value.shape?.at(-3) })));
    case "sound": return soundBody(page, field);
    case "video": return videoBody(page, field, value);
    case "frames": return framesPlayer(page, field, value);
    case "tokens": case "packed": return tokensBody(value);
    case "boxes": return numbersTable(["left", "top", "right", "bottom"], value.boxes, value.count);
    case "points": return numbersTable(["thing", "x", "y", "seen"], value.points.flatMap((thing, i) => thing.map((point) => [i, ...point])), null);
    case "array": case "spectrogram": return plotBody(page, field, value);
    case "bytes": return el("pre", { class: "hex", text: `${value.hex.replace(/(.{48})/g, "$1\n")}${value.bytes > 256 ? "\n…" : ""}` });
    default: return el("pre", { text: plain(value.text ?? value.kind) });
  }
}

function failing(image) {
  image.addEventListener("error", async () => {
    const response = await fetch(image.src).catch(() => null);
    const told = await response?.json().catch(() => null);
    image.replaceWith(el("p", { class: "note bad", text: told?.error ?? "the picture can't be shown" }));
  });
  return image;
}

function textBody(value) {
  return [el("pre", { class: "prose", dir: "auto", text: value.text }), value.more ? el("p", { class: "quiet", text: `… ${count(value.more)} more characters` }) : null];
}

function imageBody(page, field, value) {
  const { told, view, dataset } = page;
  const source = value.file ? fileUrl(told.index, field.number) : pictureUrl(told.index, field.number, {});
  const image = failing(el("img", { alt: "", src: source, width: value.width, height: value.height, class: value.orient === false ? "as-stored" : "" }));
  if (value.width && value.width <= 128) image.classList.add("pixels");
  const box = el("div", { class: "picture" }, el("div", { class: "framed" }, image));
  if (view.over && value.width && field === drawnOver(dataset, view)) {
    const over = { ...view, crop: false, fields: dataset.fields, names: (layers) => boxNames(dataset, told, layers) };
    const size = { height: Math.min(value.height, 4096), width: Math.min(value.width, 4096) };
    box.firstChild.append(...overlays(told.index, told, value, over, size));
  }
  return box;
}

// Boxes are those of one image: the one that stands for the sample, or the first.
const drawnOver = (dataset, view) => (view.hero?.kind === "image" ? view.hero : dataset.fields.find((field) => field.kind === "image"));

// Values of a list that is as long as there are boxes are names of theirs.
function boxNames(dataset, told, layers) {
  const length = layers.find((layer) => layer.kind === "boxes")?.boxes.length;
  const lists = dataset.fields.filter((field) => /label|class|categor|name/i.test(field.name))
    .map((field) => told.fields[field.number]).map((value) => (value.kind === "json" ? value.value : value.values));
  return lists.find((list) => Array.isArray(list) && list.length === length && list.every((one) => ["string", "number"].includes(typeof one))) ?? [];
}

function soundBody(page, field) {
  const { told, signal } = page;
  const canvas = el("canvas", { class: "wave" });
  const audio = el("audio", { controls: true, preload: "metadata", src: fileUrl(told.index, field.number) });
  const note = el("p", { class: "quiet" });
  let found = null;
  const paint = () => found && drawPeaks(canvas, found, audio.duration ? audio.currentTime / audio.duration : 0);
  requestAnimationFrame(() => {
    const buckets = Math.max(100, Math.min(1200, Math.round(canvas.clientWidth / 2)));
    peaks(told.index, field.number, buckets, signal).then((one) => {
      found = one;
      paint();
      if (one.sampled) note.textContent = "The outline shows a little of each part of this long sound.";
    }, (error) => signal.aborted || canvas.replaceWith(el("p", { class: "note bad", text: error.message })));
  });
  const tick = () => {
    paint();
    if (!audio.paused && !signal.aborted) requestAnimationFrame(tick);
  };
  audio.addEventListener("play", tick);
  audio.addEventListener("seeked", paint);
  audio.addEventListener("error", () => (note.textContent = "This browser does not play it."));
  canvas.addEventListener("click", (event) => {
    if (audio.duration) audio.currentTime = (event.offsetX / canvas.clientWidth) * audio.duration;
  });
  signal.addEventListener("abort", () => audio.pause());
  return [canvas, audio, note];
}

function videoBody(page, field, value) {
  const { told, signal } = page;
  const video = el("video", { controls: true, preload: "metadata", loop: true, playsInline: true, src: fileUrl(told.index, field.number) });
  if (value.width) video.style.aspectRatio = `${value.width} / ${value.height}`;
  const box = el("div", { class: "picture" }, video);
  video.addEventListener("error", () => {
    if (signal.aborted) return;
    box.replaceWith(...(value.frames === undefined
      ? [el("p", { class: "note", text: "This browser does not play the video; it can be saved below." })]
      : [el("p", { class: "quiet", text: `This browser plays no ${plain(value.codec)}; these are some of the frames.` }), ...framesPlayer(page, field, value)]));
  });
  signal.addEventListener("abort", () => video.pause());
  return box;
}

// Frames in one picture, shown one after the other.
function framesPlayer(page, field, value) {
  const { told, signal } = page;
  const frames = Math.min(value.frames, 64);
  if (!frames) return [el("p", { class: "note", text: "no frames" })];
  const scale = Math.min(1, 360 / Math.max(value.width, 1), 8000 / (value.width * frames));
  const size = { width: Math.max(1, Math.round(value.width * scale)), height: Math.max(1, Math.round(value.height * scale)) };
  const canvas = el("canvas", { class: "frames-canvas" });
  const slider = el("input", { type: "range", min: 0, max: frames - 1, value: 0, "aria-label": "Frame" });
  const label = el("span", { class: "quiet" });
  const strip = new Image();
  const rate = Math.max(1, Math.min(60, ((value.fps ?? value.frames / value.seconds) || 10) * (frames / value.frames)));
  let timer = null;
  const show = (frame) => {
    canvas.getContext("2d").drawImage(strip, -frame * canvas.width, 0);
    slider.value = frame;
    label.textContent = `frame ${count(Math.round((frame * (value.frames - 1)) / Math.max(1, frames - 1)) + 1)} of ${count(value.frames)}`;
  };
  const button = el("button", { type: "button", text: "▶", "aria-label": "Play", onclick: () => {
    if (timer) clearInterval(timer);
    timer = timer ? null : setInterval(() => show((Number(slider.value) + 1) % frames), 1000 / rate);
    button.textContent = timer ? "❚❚" : "▶";
  } });
  slider.addEventListener("input", () => show(Number(slider.value)));
  signal.addEventListener("abort", () => clearInterval(timer));
  strip.onload = () => {
    canvas.width = strip.naturalWidth / frames;
    canvas.height = strip.naturalHeight;
    canvas.dataset.loaded = "1";
    show(0);
  };
  strip.onerror = () => canvas.replaceWith(el("p", { class: "note bad", text: "the frames can't be shown" }));
  strip.src = stripUrl(told.index, field.number, { ...size, frames });
  const note = frames < value.frames ? el("p", { class: "quiet", text: `${frames} of ${count(value.frames)} frames, evenly chosen` }) : null;
  return [el("div", { class: "picture" }, canvas), el("div", { class: "player" }, button, slider, label), note].filter(Boolean);
}

function tokensBody(value) {
  const starts = new Set(value.starts ?? []);
  const pieces = value.tokens.map((token, i) => {
    const text = value.pieces?.[i];
    const shown = text === undefined ? String(token) : text.replaceAll("\n", "⏎\n");
    return el("span", { class: `token t${i % 5}${starts.has(i) ? " starts" : ""}`, title: `${i}: ${token}`, text: shown });
  });
  return [
    el("div", { class: `tokens${value.pieces ? "" : " numbers"}`, dir: "auto" }, pieces),
    value.more ? el("p", { class: "quiet", text: `… ${count(value.more)} more tokens` }) : null,
    value.note ? el("p", { class: "quiet", text: value.note }) : null,
    value.pieces ? el("details", {}, el("summary", { text: "as numbers" }), el("pre", { class: "hex", text: value.tokens.join(" ") })) : null,
  ];
}

function numbersTable(names, rows, total) {
  if (!rows.length) return el("p", { class: "note", text: "none" });
  const width = rows[0].length;
  const shown = rows.slice(0, 200);
  return [
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th"), names.slice(0, width).map((name) => el("th", { text: name })))),
      el("tbody", {}, shown.map((row, i) => el("tr", {}, el("th", { text: i }), row.map((number) => el("td", { text: typeof number === "number" ? short(number) : number }))))))),
    (total ?? rows.length) > shown.length ? el("p", { class: "quiet", text: `… ${count((total ?? rows.length) - shown.length)} more` }) : null,
  ];
}

function plotBody(page, field, value) {
  const { told, signal } = page;
  if (value.values !== undefined) return el("pre", { text: JSON.stringify(value.values) });
  const canvas = el("canvas", { class: `plot ${value.kind}` });
  const note = el("p", { class: "quiet" });
  plot(told.index, field.number, signal).then((found) => {
    if (found.form === "map") canvas.classList.add("map");
    drawPlot(canvas, found);
    note.textContent = tellPlot(found);
  }, (error) => signal.aborted || canvas.replaceWith(el("p", { class: "note", text: error.message })));
  return [canvas, note];
}

export function tellPlot(found) {
  const parts = [];
  if (found.min !== undefined) parts.push(`${short(found.min)} to ${short(found.max)}`, `mean ${short(found.mean)}`, `std ${short(found.std)}`);
  if (found.unknown) parts.push(`${count(found.unknown)} not finite`);
  if (found.slices) parts.push("the first of the leading dimensions");
  return parts.join(" · ");
}
