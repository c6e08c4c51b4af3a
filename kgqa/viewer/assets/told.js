// One question as it is told: what was found, the picture that grows, the answer. Texts enter the page as text nodes only.

const DRAWN = 60; // triples of a picture: more is a thicket; chosen ones come first
const HIDDEN = ["kgp/evidence"]; // replies that another event tells better
const ENDINGS = { failed: "failed", stopped: "stopped; what was extracted and answered so far is kept" };

const once = (places) => [...new Set(places)].join(", ");
const quoted = (text) => element("blockquote", null, text.replace(/\s+/g, " ").trim());

export class Told {
  ended = false;
  #shown = new Map(); // passages by id
  #triples = new Map(); // by their key
  #kinds = new Map(); // key of a triple -> class of its arrow
  #walk = { seeds: [], steps: [] };
  #drawn = new Set(); // passages in the picture
  #cited = new Set(); // passages that the answer quotes
  #walks; // whether the method walks from passage to passage
  #picture = null;

  constructor({ question, documents, method, model }) {
    this.#walks = method === "kgp";
    this.state = element("p", { class: "state", role: "status" }, "beginning …");
    this.bar = element("progress", { "aria-label": "how far" });
    this.answer = element("section", { class: "answer", "aria-label": "Answer" });
    this.answer.hidden = true;
    this.graph = element("section", { class: "drawn", "aria-label": this.#walks ? "Walk over the passages" : "Graph of triples" });
    this.graph.hidden = true;
    this.log = element("ol", { class: "log", "aria-label": "What happened" });
    const asked = element("header", null, element("h2", null, question), element("p", { class: "hint" }, [documents, method, model].filter(Boolean).join(" · ")));
    this.node = element("article", { class: "told" }, asked, element("div", { class: "at-work" }, this.state, this.bar), this.answer, element("div", { class: "ways" }, this.graph, element("section", { "aria-label": "Steps" }, element("h3", null, "What happened"), this.log)));
  }

  /** An event of kgqa/experiment/run/events.py. */
  take(event) {
    this[`_${event.event}`]?.(event);
  }

  _said({ text, alarm }) {
    this.#line(alarm ? element("p", { class: "wrong" }, text) : element("p", { class: "hint" }, text));
  }

  _ready({ files, passages, left_out: out, method, model, engine }) {
    this.#line(element("p", null, `${count(files, "file")}, ${count(passages, "passage")} to search · ${method} · ${model} on ${engine}`));
    for (const reason of Object.values(out)) this.#line(element("p", { class: "wrong" }, `left out: ${reason}`));
  }

  _progress({ what, ended, count: all, seconds_left: left }) {
    const time = left === null ? "" : ` · about ${clock(left)} left`;
    this.state.textContent = what === "questions" ? "answering …" : `${what}: ${ended.toLocaleString("en")}${all === null ? "" : ` of ${all.toLocaleString("en")}`}${time}`;
    if (all === null || what === "questions") this.bar.removeAttribute("value");
    else [this.bar.max, this.bar.value] = [all || 1, ended];
  }

  _found({ passages, of }) {
    this.#know(passages);
    this.#line(folded(`${passages.length} of ${count(of, "passage")} found`, () => passages.map(passageView)));
  }

  _searched({ query, passages }) {
    this.#know(passages);
    this.#line(folded([element("span", null, "search "), element("i", null, shortened(query, 120)), ` → ${count(passages.length, "passage")}`], () => passages.map(passageView)));
    if (this.#walks && !this.#walk.steps.length) {
      this.#walk.seeds = passages.map(({ id }) => id);
      this.#draw();
    }
  }

  _extracted({ passage, triples }) {
    const fresh = triples.filter((triple) => !this.#triples.has(tripleKey(triple)));
    for (const triple of fresh) this.#triples.set(tripleKey(triple), triple);
    if (!fresh.length) return;
    const place = this.#shown.get(passage)?.where;
    this.#line(folded(`${count(fresh.length, "triple")}${place ? ` of ${place}` : ""}`, () => triplesView(fresh, new Map())));
    this.#draw();
  }

  _chosen({ hop, options }) {
    const [best] = options;
    if (this.#triples.has(best.text)) this.#kinds.set(best.text, "lit");
    const rows = options.map(({ text, probability }) => element("li", null, bar(probability), ` ${text}`));
    this.#line(element("p", null, mark(`hop ${hop}`), " ", element("b", null, best.text), ` ${percent(best.probability)}`), folded(`${options.length} likeliest options`, () => element("ol", { class: "plain" }, rows)));
    this.#draw();
  }

  _wrote({ prompt, text }) {
    if (!HIDDEN.includes(prompt)) this.#line(element("p", null, mark(prompt), " ", shortened(text.replace(/\s+/g, " ").trim(), 400)));
  }

  _walked({ hop, start, sought, neighbours, chosen, aside }) {
    this.#know([start, ...chosen, ...aside]);
    this.#walk.steps.push({ start: start.id, chosen: chosen.map(({ id }) => id), aside: aside.map(({ id }) => id) });
    const visits = chosen.map((passage) => element("li", null, passageView(passage)));
    this.#line(element("p", null, mark(`hop ${hop}`), " from ", element("b", null, start.where), ", looking for ", element("i", null, shortened(sought, 200))), folded(`→ ${once(chosen.map(({ where }) => where)) || "nowhere"} (of ${count(neighbours, "neighbour")})`, () => element("ul", null, visits)));
    this.#draw();
  }

  _answered(told) {
    const { answer, error, steps, name, notes, seconds, said_by_a_sentence: said } = told;
    this.#end(error === null ? `answered after ${clock(seconds)}` : "failed");
    for (const { passage, triple } of steps) {
      this.#cited.add(passage);
      if (triple) this.#kinds.set(tripleKey(triple), "quoted");
    }
    if (notes.traversal) this.#correct(notes.traversal);
    const doubt = !steps.length ? "It rests on no passage of the documents: check it." : said ? null : "None of the sentences below says this in these words: check it.";
    this.answer.append(
      error === null ? element("p", { class: "said" }, answer || "none") : element("p", { class: "wrong" }, `failed: ${error}`),
      doubt && error === null ? element("p", { class: "alarm" }, doubt) : "",
      element("ol", { class: "steps" }, steps.map(stepView)),
      element("p", { class: "take" }, element("a", { href: `/asked/${encodeURIComponent(name)}` }, "question page: passages, chain, every call"), copying("copy answer", () => answer ?? error)),
    );
    this.answer.hidden = false;
    this.#draw();
    this.#picture?.fit();
  }

  _failed({ reason }) {
    this.#end(`${ENDINGS.failed}: ${reason}`, "wrong");
  }

  _stopped() {
    this.#end(ENDINGS.stopped);
  }

  /** The budget may have cut what was told as chosen. */
  #correct({ seeds, steps }) {
    const aside = new Map(this.#walk.steps.map((step) => [step.start, [...step.chosen, ...step.aside]]));
    this.#walk = { seeds, steps: steps.map(({ path, chosen }) => ({ start: path.at(-1), chosen, aside: (aside.get(path.at(-1)) ?? []).filter((id) => !chosen.includes(id)) })) };
  }

  #end(text, kind = "") {
    this.ended = true;
    this.state.textContent = text;
    this.state.className = `state ${kind}`;
    this.bar.hidden = true;
  }

  #know(passages) {
    for (const passage of passages) this.#shown.set(passage.id, passage);
  }

  #line(...parts) {
    this.log.append(element("li", null, parts));
  }

  #draw() {
    const drawn = this.#walks ? this.#walked() : this.#chained();
    if (!drawn) return;
    if (this.#picture) return this.#picture.show(drawn);
    this.#picture = zoomable(drawn);
    this.graph.append(element("h3", null, this.#walks ? "The walk" : "The triples"), this.#walks ? walkLegend() : tripleLegend(), this.#picture);
    this.graph.hidden = false;
  }

  /** What was not in the picture before lights up. */
  #walked() {
    if (!this.#walk.seeds.length) return null;
    const before = new Set(this.#drawn);
    return walkPicture(this.#walk, this.#shown, (id) => {
      this.#drawn.add(id);
      return `${this.#cited.has(id) ? "quoted" : ""} ${before.has(id) ? "" : "fresh"}`;
    });
  }

  #chained() {
    const weight = (triple) => ["quoted", "lit"].indexOf(this.#kinds.get(tripleKey(triple))) >>> 0;
    const drawn = [...this.#triples.values()].sort((a, b) => weight(a) - weight(b)).slice(0, DRAWN);
    return drawn.length ? triplesPicture(drawn, this.#kinds) : null;
  }
}

function stepView({ triple, sentence, where }) {
  const said = triple && element("p", { class: "triple" }, triple[0], " — ", element("b", null, triple[1]), " → ", triple[2]);
  return element("li", null, said, quoted(sentence), element("p", { class: "hint" }, where));
}

function passageView({ where, text }) {
  return element("div", { class: "passage" }, element("b", null, where), element("p", null, text));
}

function tripleLegend() {
  const line = (kind, text) => element("span", { class: "mark" }, element("span", { class: `stroke ${kind}` }), ` ${text}`);
  return element("p", { class: "legend" }, line("", "extracted"), line("lit", "chosen at a hop"), line("quoted", "in the chain of the answer"));
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}
