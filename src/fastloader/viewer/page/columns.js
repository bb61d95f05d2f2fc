// Panels in columns, each put where there is most room.

import { el } from "./dom.js";

const LEAST = 390;

export class Columns {
  // With "first" the first panel gets a column of twice the width to begin with.
  constructor(width, first = false) {
    const room = Math.max(1, Math.floor((Math.min(width, 1560) + 14) / (LEAST + 14)));
    const columns = first && room > 1 ? Math.max(2, room - 1) : room;
    this.columns = Array.from({ length: columns }, (_, i) => el("div", { class: first && room > 1 && i === 0 ? "column wide" : "column" }));
    this.root = el("div", { class: "panels" }, this.columns);
  }

  add(panel) {
    const shortest = this.columns.reduce((best, one) => (one.offsetHeight < best.offsetHeight ? one : best));
    shortest.append(panel);
  }
}
