// Of a long list only the rows in sight are in the page, and some beyond, so that few frames of a scroll change anything.

const SPARE = 8; // rows above and below

export class InSight {
  #nodes = []; // one after another, the first of row `top`
  top = 0;

  /** frame scrolls; rows are children of parent, before `end`. */
  constructor(frame, parent, end = null) {
    [this.frame, this.parent, this.end] = [frame, parent, end];
  }

  get bottom() {
    return this.top + this.#nodes.length;
  }

  clear() {
    for (const node of this.#nodes) node.remove();
    this.#nodes = [];
  }

  /** Rows of `count`, each `high` pixels, as `make(place)` gives them; gives whether any came or went. */
  draw(count, high, make) {
    const { scrollTop, clientHeight } = this.frame;
    const first = Math.min(Math.floor(scrollTop / high), count);
    const last = Math.min(count, Math.ceil((scrollTop + clientHeight) / high));
    if (this.#nodes.length && this.top <= first && this.bottom >= last) return false;
    const [from, to] = [Math.max(0, first - SPARE), Math.min(count, last + SPARE)];
    if (from >= this.bottom || to <= this.top) this.clear();
    if (!this.#nodes.length) this.top = from;
    for (; this.top < from; this.top += 1) this.#nodes.shift().remove();
    while (this.bottom > to) this.#nodes.pop().remove();
    const [above, below] = [[], []];
    for (let place = from; place < this.top; place += 1) above.push(make(place));
    for (let place = this.bottom; place < to; place += 1) below.push(make(place));
    this.#put(above, this.#nodes[0] ?? this.end);
    this.#put(below, this.end);
    this.#nodes = [...above, ...this.#nodes, ...below];
    this.top = from;
    return true;
  }

  #put(nodes, before) {
    const together = document.createDocumentFragment();
    together.append(...nodes);
    this.parent.insertBefore(together, before);
  }
}
