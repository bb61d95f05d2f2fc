// The page: what the address says is shown, and what is done changes the address.

import { ask, fileUrl, setIdentity } from "./api.js";
import { bestField } from "./card.js";
import { samplePage } from "./detail.js";
import { $, count, el, plain, toast } from "./dom.js";
import { FilterDialog, tellCondition } from "./filter.js";
import { Grid } from "./grid.js";
import { histogramsPage } from "./histograms.js";
import { choice, format, isAll, read } from "./state.js";

const POLL = 120;
let dataset = null;
let state = read();
let grid = null;
let filter = null;
let opened = null;
let searching = null;
let shownChoice = null;
let playing = null;

const view = {
  size: Number(stored("size")) || 190, width: 190, height: 148, crop: true, over: true, hero: null, fields: [], classes: null,
  link: (index) => format({ ...state, page: "sample", sample: index }),
  open: (index) => push({ page: "sample", sample: index }),
  failed: (error) => toast(error.message),
  moved: (at) => {
    if (state.page === "grid" && at !== state.at) replace({ at });
  },
};

function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`fastloader-${name}`);
    localStorage.setItem(`fastloader-${name}`, value);
  } catch {
    return null; // a browser that keeps nothing
  }
}

function push(change) {
  state = { ...state, ...change };
  location.hash = format(state);
}

function replace(change) {
  state = { ...state, ...change };
  history.replaceState(null, "", format(state));
}

async function start() {
  setTheme(stored("theme"));
  try {
    dataset = await ask("dataset");
  } catch (error) {
    $("empty").hidden = false;
    $("empty").textContent = error.message;
    return;
  }
  setIdentity(dataset.identity);
  document.title = `${plain(dataset.title)} · fastloader`;
  $("title").textContent = plain(dataset.title);
  $("home").title = plain(dataset.path);
  view.fields = dataset.fields;
  view.classes = dataset.classes;
  view.archive = dataset.format === "archive";
  $("search").placeholder = dataset.keys ? "key, pattern* or #number" : "#number";
  $("show").append(...dataset.fields.filter((field) => field.name !== "__key__").map((field) => el("option", { value: field.number, text: plain(field.name) })));
  $("size").value = view.size;
  filter = new FilterDialog(dataset, (made) => addFilters(made));
  grid = new Grid($("grid"), $("layer"), $("rows"), $("spacer"), view);
  listen();
  await apply(true);
}

// Shows what the address says.
async function apply(first = false) {
  state = read();
  const hero = dataset.fields.find((field) => String(field.number) === state.show) ?? bestField(dataset.fields);
  const looks = hero !== view.hero || (state.show === "") !== view.auto || (state.crop === "1") !== view.crop || (state.over === "1") !== view.over;
  view.hero = hero;
  view.auto = state.show === "";
  view.crop = state.crop === "1";
  view.over = state.over === "1";
  $("show").value = hero?.number ?? "";
  $("fit").setAttribute("aria-pressed", String(!view.crop));
  $("over").setAttribute("aria-pressed", String(view.over));
  if (document.activeElement !== $("search")) $("search").value = state.key;
  chips();
  const wanted = String(choice(state));
  const changed = wanted !== shownChoice;
  if (changed) {
    shownChoice = wanted;
    const searched = search(first);
    if (state.page === "sample") searched.then(() => again(wanted));
    else await searched;
  } else grid.state = state;
  if (looks && !changed) grid.relook();
  if (first && state.at) grid.goTo(state.at);
  document.body.dataset.page = state.page;
  if (state.page === "grid") closePage();
  else await openPage();
}

function closePage() {
  const place = opened?.told?.position;
  opened?.close();
  opened = null;
  $("page").hidden = true;
  $("page").replaceChildren();
  const wasHidden = $("grid").hidden;
  $("grid").hidden = false;
  $("empty").hidden = grid.total > 0 || searching !== null;
  if (wasHidden) grid.layout();
  if (place !== undefined) grid.select(place);
  grid.render();
  $("grid").focus({ preventScroll: true });
}

async function openPage() {
  const now = state;
  if (playing) listenTo(null);
  let made;
  if (state.page === "histograms") made = histogramsPage(dataset, state, (conditions) => addFilters(conditions, true));
  else {
    try {
      const told = await ask(`sample/${state.sample}`, choice(state));
      if (state !== now) return;
      made = samplePage(dataset, told, view, {
        back: () => push({ page: "grid" }), to: (index) => push({ sample: index }), copy: copyLink, present,
      });
      made.told = told;
      ahead(told);
    } catch (error) {
      const back = el("button", { type: "button", text: "‹ All samples", onclick: () => push({ page: "grid" }) });
      made = { root: el("div", { class: "sample" }, el("p", { class: "note bad", text: error.message }), back), close: () => {} };
    }
  }
  opened?.close();
  opened = made;
  $("grid").hidden = true;
  $("empty").hidden = true;
  $("page").replaceChildren(made.root);
  $("page").hidden = false;
  made.lay?.();
  $("page").scrollTop = 0;
  $("page").focus({ preventScroll: true });
}

// A sample whose neighbours were still being looked for when it was opened.
function again(wanted) {
  const told = opened?.told;
  if (state.page === "sample" && wanted === shownChoice && told?.index === state.sample && told.found !== grid.total) openPage();
}

// The neighbours' pictures, before they are asked for.
function ahead(told) {
  const hero = view.hero;
  if (hero?.kind !== "image") return;
  for (const index of [told.after, told.before]) {
    if (index !== null) new Image().src = `/api/file/${index}/${hero.number}?${new URLSearchParams({ v: dataset.identity })}`;
  }
}

async function search(first) {
  searching?.abort();
  searching = null;
  $("progress").hidden = true;
  $("empty").hidden = true;
  if (isAll(state)) {
    grid.show(state, dataset.total);
    tellCount(dataset.total);
    if (!dataset.total) empty("There are no samples in this dataset.");
    return;
  }
  const mine = (searching = new AbortController());
  grid.show(state, 0);
  const asked = choice(state);
  for (;;) {
    let told;
    try {
      told = await ask("search", asked, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      searching = null;
      tellCount(0);
      return empty(error.message);
    }
    if (mine.signal.aborted) return;
    tellCount(told.found);
    $("progress").hidden = told.finished;
    $("progress").value = told.total ? told.done / told.total : 1;
    $("progress-text").textContent = told.finished ? "" : `looked at ${count(told.done)} of ${count(told.total)}`;
    if (told.found > grid.total) {
      const had = grid.total;
      grid.grow(told.found);
      if (first && !had && state.at) grid.goTo(state.at);
    }
    if (told.finished) {
      searching = null;
      if (told.error) return empty(told.error);
      if (!told.found) empty("No sample is like that.");
      return;
    }
    if (state.page !== "grid") await new Promise((done) => setTimeout(done, POLL));
  }
}

function empty(text) {
  $("empty").textContent = text;
  $("empty").hidden = state.page !== "grid";
}

function tellCount(found) {
  const all = isAll(state);
  $("count").textContent = all ? `${count(found)} samples` : `${count(found)} of ${count(dataset.total)} samples`;
}

function chips() {
  const parts = [];
  if (state.key) parts.push(chip(`key ${plain(state.key)}`, () => push({ key: "", at: 0 })));
  state.where.forEach((one, i) => parts.push(chip(tellCondition(JSON.parse(one), dataset.columns), () => push({ where: state.where.filter((_, at) => at !== i), at: 0 }))));
  if (parts.length > 1) parts.push(el("button", { type: "button", class: "plain", text: "all samples", onclick: () => push({ key: "", where: [], at: 0 }) }));
  $("chips").replaceChildren(...parts);
  $("status").hidden = !parts.length;
}

function chip(text, drop) {
  return el("button", { type: "button", class: "chip", title: "Drop this", onclick: drop }, text, el("span", { "aria-hidden": "true", text: " ×" }));
}

function addFilters(conditions, home = false) {
  const made = conditions.map((one) => JSON.stringify(one));
  push({ where: [...state.where.filter((one) => !made.includes(one)), ...made], at: 0, ...(home ? { page: "grid" } : {}) });
}

function runSearch(text) {
  text = text.trim();
  const number = /^#\s*([\d.,\s]+)$/.exec(text);
  if (number) {
    const index = Number(number[1].replace(/[.,\s]/g, ""));
    if (index < dataset.total) return push({ page: "sample", sample: index });
    return toast(`there are ${count(dataset.total)} samples, from #0 on`);
  }
  if (text && !dataset.keys) return toast("The samples have no keys; #12 goes to a sample.");
  push({ key: text, page: "grid", at: 0 });
  $("grid").focus({ preventScroll: true });
}

async function copyLink() {
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    toast("The link is copied.");
  } catch {
    window.prompt("The link to what is shown:", link);
  }
}

function present() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.().catch(() => toast("The browser does not allow it."));
}

function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function otherTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  stored("theme", dark ? "light" : "dark");
  setTheme(dark ? "light" : "dark");
  grid.redraw();
  if (state.page === "sample") openPage();
}

function resize(change) {
  view.size = Math.max(110, Math.min(420, change));
  $("size").value = view.size;
  stored("size", view.size);
  grid.layout();
}

function listen() {
  window.addEventListener("hashchange", () => apply());
  document.addEventListener("fullscreenchange", () => document.body.classList.toggle("presenting", !!document.fullscreenElement));
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") runSearch($("search").value);
    else if (event.key === "Escape") {
      $("search").value = state.key;
      $("grid").focus({ preventScroll: true });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  $("search").addEventListener("search", () => !$("search").value && state.key && runSearch(""));
  $("filter").addEventListener("click", () => filter.open());
  $("show").addEventListener("change", () => push({ show: $("show").value }));
  $("size").addEventListener("input", () => resize(Number($("size").value)));
  $("fit").addEventListener("click", () => push({ crop: view.crop ? "0" : "1" }));
  $("over").addEventListener("click", () => push({ over: view.over ? "0" : "1" }));
  $("theme").addEventListener("click", otherTheme);
  $("help").addEventListener("click", () => $("help-dialog").showModal());
  $("histograms-link").addEventListener("click", (event) => {
    event.preventDefault();
    push({ page: state.page === "histograms" ? "grid" : "histograms" });
  });
  $("home").addEventListener("click", (event) => {
    event.preventDefault();
    push({ page: "grid", key: "", where: [], at: 0 });
  });
  $("rows").addEventListener("click", (event) => {
    const root = event.target.closest(".card");
    const card = [...grid.cards.values()].find((one) => one.root === root);
    if (!card) return;
    grid.select(card.position);
    if (!card.data) grid.opening = card.position;
    if (event.target.closest(".badge.play")) {
      event.preventDefault();
      listenTo(card);
    }
  });
  document.addEventListener("keydown", keys);
}

const ANYWHERE = {
  "/": () => { $("search").focus(); $("search").select(); },
  "?": () => $("help-dialog").showModal(),
  f: () => filter.open(),
  h: () => push({ page: state.page === "histograms" ? "grid" : "histograms" }),
  t: otherTheme,
  o: () => push({ over: view.over ? "0" : "1" }),
  x: () => push({ crop: view.crop ? "0" : "1" }),
  l: copyLink,
  p: present,
};
const IN_GRID = {
  ArrowLeft: () => grid.move(-1, 0), ArrowRight: () => grid.move(1, 0),
  ArrowUp: () => grid.move(0, -1), ArrowDown: () => grid.move(0, 1),
  PageUp: () => grid.pages(-1), PageDown: () => grid.pages(1),
  Home: () => grid.select(0), End: () => grid.select(grid.total - 1),
  Enter: () => openSelected(), "+": () => resize(view.size + 30), "-": () => resize(view.size - 30),
  " ": () => (grid.current()?.stage.classList.contains("sound") ? listenTo(grid.current()) : openSelected()),
  Escape: () => !isAll(state) && push({ key: "", where: [], at: 0 }),
};
const IN_SAMPLE = {
  ArrowLeft: () => step("before"), ArrowRight: () => step("after"),
  Escape: () => push({ page: "grid" }), v: () => opened?.check?.(), " ": () => opened?.play?.(),
};
const IN_HISTOGRAMS = { Escape: () => push({ page: "grid" }) };

// The sound of a card, begun or stopped.
function listenTo(card) {
  const index = card?.data?.index;
  const same = playing?.index === index;
  playing?.audio.pause();
  playing?.badge?.classList.remove("on");
  playing = null;
  if (same || index === undefined) return;
  const badge = card.stage.querySelector(".badge");
  const audio = new Audio(fileUrl(index, view.hero.number));
  playing = { index, audio, badge };
  badge?.classList.add("on");
  audio.addEventListener("ended", () => playing?.audio === audio && listenTo(card));
  audio.play().catch(() => playing?.audio === audio && (listenTo(card), toast("This browser does not play it.")));
}

function openSelected() {
  const data = grid.current()?.data;
  if (data) view.open(data.index);
  else grid.opening = grid.selected;
}

function step(way) {
  const index = opened?.told?.[way];
  if (index !== null && index !== undefined) push({ sample: index });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  if (target.closest("input, select, textarea, audio, video")) return;
  if (target.closest("button, summary, a.save") && (event.key === "Enter" || event.key === " ")) return;
  const here = { grid: IN_GRID, sample: IN_SAMPLE, histograms: IN_HISTOGRAMS }[state.page];
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = here[key] ?? ANYWHERE[key];
  if (!action) return;
  event.preventDefault();
  action();
}

start();
