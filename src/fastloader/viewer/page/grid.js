// A grid over any number of samples. Elements are made for those in sight alone, and used again for others.
//
// Browsers limit how tall an element can be, so the scrollbar stands for more than it measures: small movements are
// taken as they are, large ones as a share of the whole, and the bar is put right when it comes to rest.

import { ask } from "./api.js";
import { Card } from "./card.js";
import { choice } from "./state.js";

const TALLEST = 8_000_000;
const GAP = 10;
const CAPTION = 46;
const CHUNK = 48;
const KEPT_CHUNKS = 60;
const SETTLE = 120;
const BASE_ROWS = 500;

export class Grid {
  constructor(root, layer, rows, spacer, view) {
    Object.assign(this, { root, layer, rows, spacer, view });
    this.total = 0;
    this.top = 0;
    this.last = 0;
    this.selected = 0;
    this.base = 0;
    this.cards = new Map();
    this.spare = [];
    this.made = 0;
    this.chunks = new Map();
    this.waiting = new Map();
    this.state = null;
    this.opening = NaN; // where a sample is to be opened as soon as it is known
    root.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(root);
  }

  // Other samples, or the same shown otherwise.
  show(state, total, keep = false) {
    const at = this.firstInSight();
    this.state = state;
    this.forget();
    this.total = total;
    this.layout(false);
    if (keep) this.goTo(at);
    else this.setTop(0);
    this.selected = Math.min(keep ? this.selected : 0, Math.max(0, total - 1));
    this.render();
  }

  // More of the same were found.
  grow(total) {
    if (total === this.total) return;
    const before = this.total;
    this.total = total;
    this.chunks.delete(Math.floor(before / CHUNK)); // it was cut short
    this.layout(false);
    this.render();
  }

  forget() {
    for (const abort of this.waiting.values()) abort.abort();
    this.waiting.clear();
    this.chunks.clear();
    for (const card of this.cards.values()) this.recycle(card);
    this.cards.clear();
  }

  layout(keep = true) {
    const at = this.firstInSight();
    const width = this.root.clientWidth - 2 * GAP;
    this.height = this.root.clientHeight;
    if (width <= 0 || !this.height) return;
    this.columns = Math.max(1, Math.floor((width + GAP) / (this.view.size + GAP)));
    this.cell = (width + GAP) / this.columns;
    this.side = Math.round(this.cell - GAP);
    this.row = Math.round(this.side * 0.78) + CAPTION + GAP;
    const high = Math.ceil(this.total / this.columns) * this.row + GAP;
    this.whole = Math.max(high, this.height);
    this.bar = Math.min(this.whole, TALLEST);
    this.layer.style.height = `${this.height}px`;
    this.spacer.style.height = `${this.bar - this.height}px`;
    this.view.width = this.side;
    this.view.height = this.row - CAPTION - GAP;
    for (const card of this.cards.values()) this.recycle(card);
    this.cards.clear();
    if (keep) this.setTop(Math.floor(at / this.columns) * this.row);
    this.render();
  }

  get most() {
    return Math.max(0, this.whole - this.height);
  }

  get barMost() {
    return Math.max(0, this.bar - this.height);
  }

  firstInSight() {
    return this.row ? Math.floor(this.top / this.row) * this.columns : 0;
  }

  // The bar to where it belongs.
  setTop(top) {
    this.top = Math.max(0, Math.min(top, this.most));
    this.last = this.most ? Math.round((this.top / this.most) * this.barMost) : 0;
    this.root.scrollTop = this.last;
    this.last = this.root.scrollTop;
    this.render();
  }

  scrolled() {
    const now = this.root.scrollTop;
    const moved = now - this.last;
    if (!moved) return;
    this.last = now;
    if (this.whole === this.bar || Math.abs(moved) > 3 * this.height) {
      this.top = this.barMost ? (now / this.barMost) * this.most : 0;
    } else {
      this.top = Math.max(0, Math.min(this.top + moved, this.most));
      const stuck = (now <= 0 && this.top > 0) || (now >= this.barMost - 1 && this.top < this.most);
      if (stuck) return this.setTop(this.top);
    }
    if (!this.frame) this.frame = requestAnimationFrame(() => this.render());
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settled(), SETTLE);
  }

  settled() {
    if (this.whole !== this.bar) this.setTop(this.top);
    this.view.moved?.(this.firstInSight());
  }

  render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.row || this.root.hidden) return;
    const first = Math.max(0, Math.floor(this.top / this.row) - 1);
    const end = Math.ceil((this.top + this.height) / this.row) + 1;
    const from = first * this.columns;
    const to = Math.min(end * this.columns, this.total);
    const base = Math.floor(first / BASE_ROWS) * BASE_ROWS;
    const moved = base !== this.base;
    this.base = base;
    for (const [position, card] of this.cards) {
      if (position < from || position >= to) {
        this.cards.delete(position);
        this.recycle(card);
      } else if (moved) this.place(card, position);
    }
    for (let position = from; position < to; position++) {
      if (!this.cards.has(position)) this.cards.set(position, this.take(position));
    }
    this.rows.style.transform = `translateY(${base * this.row - this.top}px)`;
    this.mark();
    this.wanted = [from, to];
    clearTimeout(this.fetching);
    this.fetching = setTimeout(() => this.fetch(), this.waiting.size ? 60 : 0);
  }

  take(position) {
    const card = this.spare.shift() ?? new Card(this.made++);
    card.position = position;
    card.clear();
    card.root.hidden = false;
    card.root.style.width = `${this.side}px`;
    card.root.style.height = `${this.row - GAP}px`;
    this.place(card, position);
    if (!card.root.isConnected) this.rows.append(card.root);
    const chunk = this.chunks.get(Math.floor(position / CHUNK));
    const data = chunk?.[position % CHUNK];
    if (data) card.fill(data, this.view);
    return card;
  }

  place(card, position) {
    const row = Math.floor(position / this.columns);
    const x = GAP + (position % this.columns) * this.cell;
    const y = GAP + (row - this.base) * this.row;
    card.root.style.transform = `translate(${x}px, ${y}px)`;
    card.root.dataset.row = row;
    card.root.setAttribute("aria-posinset", position + 1);
    card.root.setAttribute("aria-setsize", this.total);
  }

  recycle(card) {
    card.clear();
    card.root.hidden = true;
    card.position = -1;
    this.spare.push(card);
  }

  // Ask for what is in sight and not here; give up what was asked for and is out of sight.
  fetch() {
    const [from, to] = this.wanted;
    if (to <= from) return;
    this.order();
    const first = Math.floor(from / CHUNK);
    const last = Math.floor((to - 1) / CHUNK);
    for (const [chunk, abort] of this.waiting) {
      if (chunk < first || chunk > last) {
        abort.abort();
        this.waiting.delete(chunk);
      }
    }
    for (let chunk = first; chunk <= last; chunk++) {
      if (!this.chunks.has(chunk) && !this.waiting.has(chunk)) this.load(chunk);
    }
  }

  // Elements in the order of samples, for those who are read the page.
  order() {
    const sorted = [...this.cards].sort(([one], [other]) => one - other).map(([, card]) => card.root);
    if (sorted.some((root, i) => i && !(sorted[i - 1].compareDocumentPosition(root) & Node.DOCUMENT_POSITION_FOLLOWING))) {
      this.rows.append(...sorted);
    }
  }

  async load(chunk) {
    const abort = new AbortController();
    this.waiting.set(chunk, abort);
    const start = chunk * CHUNK;
    const hero = this.view.hero === null ? "" : this.view.hero.number;
    try {
      const told = await ask("cards", choice(this.state, { start, count: CHUNK, hero }), abort.signal);
      if (abort.signal.aborted) return;
      this.chunks.set(chunk, told.cards);
      while (this.chunks.size > KEPT_CHUNKS) this.chunks.delete(this.chunks.keys().next().value);
      told.cards.forEach((data, i) => this.cards.get(start + i)?.fill(data, this.view));
      const awaited = told.cards[this.opening - start];
      if (awaited) {
        this.opening = NaN;
        this.view.open(awaited.index);
      }
    } catch (error) {
      if (abort.signal.aborted) return;
      this.view.failed(error);
    } finally {
      if (this.waiting.get(chunk) === abort) this.waiting.delete(chunk);
    }
  }

  mark() {
    const card = this.cards.get(this.selected);
    for (const other of this.rows.querySelectorAll(".selected")) {
      if (other === card?.root) continue;
      other.classList.remove("selected");
      other.removeAttribute("aria-selected");
    }
    if (card) {
      card.root.classList.add("selected");
      card.root.setAttribute("aria-selected", "true");
      this.root.setAttribute("aria-activedescendant", card.root.id);
    }
  }

  select(position) {
    if (!this.total) return;
    this.opening = NaN;
    this.selected = Math.max(0, Math.min(position, this.total - 1));
    this.reveal(this.selected);
    this.mark();
  }

  reveal(position) {
    const row = Math.floor(position / this.columns);
    const above = row * this.row;
    const below = above + this.row + GAP - this.height;
    if (this.top > above) this.setTop(above);
    else if (this.top < below) this.setTop(below);
    else this.render();
  }

  goTo(position) {
    if (this.row) this.setTop(Math.floor(position / this.columns) * this.row);
  }

  move(columns, rows) {
    this.select(this.selected + columns + rows * this.columns);
  }

  pages(number) {
    this.move(0, number * Math.max(1, Math.floor(this.height / this.row)));
  }

  current() {
    return this.cards.get(this.selected);
  }

  // The same samples, shown otherwise; what is here is only drawn anew.
  relook() {
    const number = this.view.hero?.number;
    const known = [...this.chunks.values()].every((cards) => !cards.length || number in cards[0].fields);
    if (known) this.redraw();
    else this.show(this.state, this.total, true);
  }

  redraw() {
    for (const card of this.cards.values()) if (card.data) card.fill(card.data, this.view);
  }
}
