// Runs side by side, question by question. Only questions in sight are in the page.

import { figureText } from "./columns.js";
import { asked, pages, runAddress, trouble } from "./server.js";
import { InSight } from "./sight.js";

const LETTERS = "ABCDEF";
let showing = 0; // which call of showCompare is the last

export async function showCompare(main, table, keys) {
  const mine = ++showing;
  if (keys.length < 2) {
    main.replaceChildren(element("section", null, element("h2", null, "Side by side"), element("p", null, "Choose two to six runs in the table (x, or the box before the name), then press “side by side”.")));
    return;
  }
  const query = keys.map((key) => `run=${encodeURIComponent(key)}`).join("&");
  const list = new Answers(keys);
  const figures = element("div", { class: "tested" }, element("p", { class: "hint" }, "Testing …"));
  main.replaceChildren(element("section", { class: "sides" }, keys.map((key, place) => sideView(table.rows.get(key), key, place))), folded("Paired tests and intervals", () => figures), list.node);
  list.draw(true);
  void asked(`/api/figures?${query}`).then(({ sections }) => figures.replaceChildren(...sections.map(sectionView)), (error) => figures.replaceChildren(element("p", { class: "wrong" }, error.message)));
  for await (const rows of pages(`/api/answers?${query}`, 60, 500)) {
    if (mine !== showing) return;
    list.take(rows);
  }
  trouble(null);
}

function sideView(row, key, place) {
  const shown = ["EM", "F1", "judge", "support recall", "tokens / question", "USD / question"].filter((id) => row?.figures?.[id]);
  return element("div", null, element("h2", null, mark(LETTERS[place]), " ", element("a", { href: runAddress(key) }, key)), facts(shown.map((id) => [id, figureText(row.figures[id])])));
}

function sectionView({ title, header, rows, text }) {
  return element("div", null, element("h3", null, title), grid(header, rows), text.map((line) => element("p", { class: "hint" }, line)));
}

class Answers {
  #rows = [];
  #visible = [];

  constructor(keys) {
    this.keys = keys;
    this.filter = element("select", { "aria-label": "Which questions" }, choices(keys.length).map(([value, name]) => element("option", { value }, name)));
    this.search = element("input", { type: "search", placeholder: "Search questions and answers", "aria-label": "Search questions and answers" });
    this.count = element("output", { "aria-live": "polite" });
    this.items = element("ol", { "aria-label": "Questions" });
    this.list = element("div", { class: "scrolled answers", tabindex: "0", role: "region", "aria-label": "Answers side by side" }, this.items);
    const form = element("form", { role: "search", class: "bar-of-tools" }, this.search, this.filter, this.count);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => this.arrange(true));
    this.sight = new InSight(this.list, this.items);
    this.list.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw(true)).observe(this.list);
    this.node = element("div", { class: "answers-view" }, form, this.list);
  }

  take(rows) {
    for (const row of rows) row.searched = [row.id, row.question, ...row.gold, ...row.answers.map((each) => each?.answer ?? "")].join("\n").toLowerCase();
    this.#rows.push(...rows);
    this.arrange(false);
  }

  arrange(above) {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.filter.value;
    this.#visible = this.#rows.filter((row) => fits(row, wanted) && words.every((word) => row.searched.includes(word)));
    this.count.textContent = `${this.#visible.length} of ${this.#rows.length} questions`;
    if (above) this.list.scrollTop = 0;
    this.draw(true);
  }

  /** anew: the rows, or the room for them, are others than before. */
  draw(anew = false) {
    if (anew) {
      this.narrow = this.list.clientWidth < 700;
      this.high = this.narrow ? 38 + 22.5 * this.keys.length : 58;
      this.items.style.height = `${this.#visible.length * this.high}px`;
      this.sight.clear();
    }
    this.sight.draw(this.#visible.length, this.high, (place) => this.#rowView(this.#visible[place], place, this.high, this.narrow));
  }

  #rowView(row, place, high, narrow) {
    const cells = row.answers.map((answer, side) => {
      if (!answer) return element("span", { class: "hint" }, mark(LETTERS[side]), " not asked");
      const [sign, kind, said] = verdict(answer);
      const text = answer.error ?? (answer.answer || "no answer");
      return element("a", { href: `${runAddress(this.keys[side])}${linkTo(row.id)}`, title: text }, mark(LETTERS[side]), " ", element("span", { class: kind, role: "img", "aria-label": said }, sign), ` ${text}`);
    });
    const sides = element("div", { class: "cells" }, cells);
    sides.style.gridTemplateColumns = narrow ? "1fr" : `repeat(${cells.length}, 1fr)`;
    const flipped = fits(row, "flipped") ? mark("flipped", "gold") : null;
    const item = element("li", { "aria-posinset": place + 1, "aria-setsize": this.#visible.length }, element("p", { title: row.question }, flipped, row.question, element("span", { class: "hint" }, ` gold: ${row.gold.join(" | ")}`)), sides);
    [item.style.top, item.style.height] = [`${place * high}px`, `${high}px`];
    return item;
  }
}

function choices(count) {
  const alone = [...LETTERS.slice(0, count)].map((letter, place) => [`only ${place}`, `only ${letter} right`]);
  return [["", "all questions"], ["flipped", "flipped: right in one, wrong in another"], ...alone, ["all", "all right"], ["none", "none right"]];
}

function fits({ answers }, wanted) {
  const right = answers.filter(Boolean).map((each) => each.em === 1);
  if (!wanted) return true;
  if (wanted === "flipped") return right.includes(true) && right.includes(false);
  if (wanted === "all") return !right.includes(false);
  if (wanted === "none") return !right.includes(true);
  return answers.every((each, place) => (each?.em === 1) === (place === Number(wanted.slice(5))));
}
