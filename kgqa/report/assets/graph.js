// Pictures of triples and walks. Passages and replies enter the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
let graphs = 0; // number of pictures: each has its own arrow head

function drawing(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];

/** Returns whether a text contains the words of the answer in sequence, as in steps.py. */
const holds = (text, answer) => wordsOf(answer ?? "").length > 0 && ` ${wordsOf(text).join(" ")} `.includes(` ${wordsOf(answer).join(" ")} `);

/** "the architect Ilse Ravenholt" is Ilse Ravenholt; "the university of Paris" and "New York" are neither Paris nor York. */
function isDescriptionOf(longer, shorter) {
  if (longer.toLowerCase() === shorter.toLowerCase()) return true;
  const before = longer.endsWith(` ${shorter}`) ? longer.slice(0, -shorter.length).trim() : "";
  return /^[\p{Ll} ]+$/u.test(before) && !/\b(of|in|at|on|from|near|by|for|to|and|or|with|than|not)\b/.test(before) && /^\p{Lu}/u.test(shorter);
}

/** Maps each entity to the first entity of the triples with the same meaning. */
function sameEntities(triples) {
  const first = new Map();
  for (const entity of triples.flatMap(([head, , tail]) => [head, tail])) {
    if (!first.has(entity)) first.set(entity, [...first.values()].find((known) => isDescriptionOf(known, entity) || isDescriptionOf(entity, known)) ?? entity);
  }
  return first;
}

/**
 * Draws entities in columns by their distance from the first head, relations as arrows, and marks the answer. A dashed
 * line leads to a step of a chain that shares no entity with earlier steps.
 */
function graphView(triples, answer, isChain) {
  const first = sameEntities(triples);
  const columns = new Map();
  const arrows = new Map(); // relations between the same two share an arrow
  let last = null; // head of the step before
  for (const [headName, relation, tailName] of triples) {
    const [head, tail] = [first.get(headName), first.get(tailName)];
    if (isChain && last !== null && !columns.has(head) && !columns.has(tail)) arrows.set(JSON.stringify([last, head]), { relations: [], kind: "next" });
    if (!columns.has(head)) columns.set(head, columns.has(tail) ? Math.max(0, columns.get(tail) - 1) : 0);
    if (!columns.has(tail)) columns.set(tail, columns.get(head) + 1);
    const key = JSON.stringify([head, tail]);
    arrows.set(key, { relations: [...new Set([...(arrows.get(key)?.relations ?? []), relation])], kind: "" });
    last = head;
  }
  const names = (entity) => [...first].filter(([, same]) => same === entity).map(([name]) => name);
  const boxes = new Map([...columns].map(([entity, column]) => {
    const title = names(entity).join(" = ");
    return [entity, { column, lines: [entity], title, kind: names(entity).some((name) => holds(name, answer)) ? "answer" : "" }];
  }));
  const drawn = [...arrows].map(([key, { relations, kind }]) => [...JSON.parse(key), relations.join(", "), kind]);
  const longest = (texts) => Math.max(...texts.map((text) => text.length));
  const widths = [];
  for (const [entity, { column }] of boxes) widths[column] = Math.min(260, Math.max(widths[column] ?? 60, entity.length * 7 + 16));
  const gap = Math.min(200, Math.max(80, longest(drawn.map((arrow) => arrow[2])) * 6.5 + 30));
  return zoomable(picture(boxes, drawn, { gap, high: 58, widths, boxHigh: 28, said: `graph of ${triples.length} triples, listed below` }));
}

/**
 * Draws boxes in columns, and arrows. A narrow page has the boxes of a line below each other.
 * boxes: id -> {column, lines, title, kind}, from top to bottom.
 * arrows: [from, to, label, kind]. widths: of the boxes in each column.
 */
function picture(boxes, arrows, { gap, high, widths, boxHigh, said }) {
  graphs += 1;
  const counts = [];
  const at = new Map();
  const isTall = matchMedia("(max-width: 760px)").matches && new Set([...boxes.values()].map(({ column }) => column)).size === boxes.size;
  for (const [id, { column }] of boxes) {
    counts[column] = (counts[column] ?? 0) + 1;
    const left = widths.slice(0, column).reduce((sum, wide) => sum + wide + gap, 4);
    at.set(id, isTall ? [4, column * high + 22, widths[column]] : [left, (counts[column] - 1) * high + 22, widths[column]]);
  }
  const isBelow = ([, fromY], [, toY]) => isTall && toY === fromY + high;
  const bows = arrows.some(([from, to]) => at.get(to)[0] <= at.get(from)[0] && !isBelow(at.get(from), at.get(to)));
  const ends = [...at.values()].map(([left, , wide]) => left + wide);
  if (isTall) ends.push(...arrows.map(([, , label]) => 32 + label.length * 6.5));
  const [width, height] = [Math.max(...ends) + (bows ? 90 : 4), (isTall ? counts.length : Math.max(...counts.map((count) => count ?? 0))) * high + 14];
  const arrow = drawing("marker", { id: `arrow${graphs}`, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, drawing("path", { d: "M0 0L8 4L0 8z" }));
  const edges = arrows.map(([from, to, label, kind], index) => edgeView(at.get(from), at.get(to), label, [kind, index]));
  const shown = [...boxes].map(([id, { lines, title, kind }]) => {
    const [x, y, boxWide] = at.get(id);
    const middle = y + boxHigh / 2 + 4 - (lines.length - 1) * 7;
    const texts = lines.map((line, place) => drawing("text", { x: x + boxWide / 2, y: middle + place * 14, class: place ? "under" : "" }, shortened(line, Math.floor(boxWide / 6.8))));
    return drawing("g", { class: `box ${kind ?? ""}` }, drawing("title", null, title), drawing("rect", { x, y, width: boxWide, height: boxHigh, rx: 5 }), texts);
  });
  return drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said }, drawing("defs", null, arrow), edges, shown);

  function edgeView([fromX, fromY, fromWide], [toX, toY, toWide], relation, [kind, index]) {
    if (kind === "next") {
      const [x, y, below, above] = [fromX + 20, fromY + boxHigh, toX + 20, toY - 2];
      return drawing("path", { d: `M${x},${y} C${x},${y + 15} ${below},${above - 15} ${below},${above}`, "marker-end": `url(#arrow${graphs})`, class: kind });
    }
    if (isBelow([fromX, fromY], [toX, toY])) {
      const [x, y] = [fromX + 20, fromY + boxHigh];
      const label = relation && drawing("text", { x: x + 8, y: (y + toY) / 2 + 4, class: "relation below" }, relation);
      return [drawing("path", { d: `M${x},${y}V${toY - 2}`, "marker-end": `url(#arrow${graphs})`, class: kind ?? "" }), label];
    }
    const middle = boxHigh / 2;
    const forward = toX > fromX;
    const start = [fromX + fromWide, fromY + middle];
    const end = forward ? [toX - 2, toY + middle] : [toX + toWide + 2, toY + middle];
    // backwards or within a column: a curve next to the boxes, wider for longer distances
    const bow = 25 + Math.min(60, Math.abs(toY - fromY) / 4);
    const bend = forward ? [start[0] + 50, start[1], end[0] - 50, end[1]] : [start[0] + bow, start[1], end[0] + bow, end[1]];
    const label = { x: (start[0] + end[0]) / 2 + (forward ? 0 : 30), y: (start[1] + end[1]) / 2 - 5 - (forward ? 0 : 6 + (index % 3) * 10) };
    return [
      drawing("path", { d: `M${start} C${bend.slice(0, 2)} ${bend.slice(2)} ${end}`, "marker-end": `url(#arrow${graphs})`, class: kind ?? "" }),
      relation && drawing("text", { class: "relation", ...label }, drawing("title", null, relation), shortened(relation, Math.floor((gap - 20) / 6.2))),
    ];
  }
}

// ---- a walk over passages (KGP)

const ASIDE = 20; // maximum number of neighbors that the walk did not choose

/**
 * Draws the passages of a walk: seeds, visited passages by hop, then neighbors that were not chosen.
 * walk: {seeds: [id], steps: [{start, chosen: [id], aside: [id]}]}; shown: id -> {where, text}; kindOf: id -> more classes.
 */
function walkPicture({ seeds, steps }, shown, kindOf = () => "") {
  const boxes = new Map();
  const put = (id, column, kind) => {
    if (boxes.has(id)) return;
    const { where, text } = shown.get(id) ?? { where: id, text: "" };
    boxes.set(id, { column, lines: [where, text.replace(/\s+/g, " ").trim()].filter(Boolean), title: `${where}\n${text}`, kind: `${kind} ${kindOf(id)}` });
  };
  for (const id of seeds) put(id, 0, "seed");
  const arrows = [];
  for (const { start, chosen } of steps) {
    put(start, 0, "seed");
    boxes.get(start).kind += " stood";
    for (const id of chosen) put(id, boxes.get(start).column + 1, "visited");
    for (const id of chosen) arrows.push([start, id, "", "walked"]);
  }
  const last = Math.max(0, ...[...boxes.values()].map(({ column }) => column)) + 1;
  const aside = [...new Set(steps.flatMap((step) => step.aside))].filter((id) => !boxes.has(id)).slice(0, ASIDE);
  for (const id of aside) put(id, last, "aside");
  for (const { start, aside: passed } of steps) for (const id of passed) if (aside.includes(id)) arrows.unshift([start, id, "", "passed"]);
  const distinct = new Map(arrows.map((arrow) => [JSON.stringify(arrow), arrow]));
  const visited = [...boxes.values()].filter(({ kind }) => kind.startsWith("visited")).length;
  const said = `walk from ${seeds.length} passages to ${visited} more, listed in the text`;
  return picture(boxes, [...distinct.values()], { gap: 100, high: 50, widths: Array(last + 1).fill(200), boxHigh: 38, said });
}

/** The meaning of the colors. */
function walkLegend() {
  const sample = (kind, text) => element("span", { class: "mark" }, element("span", { class: `sample ${kind}` }), ` ${text}`);
  return element("p", { class: "legend" }, sample("seed", "found first"), sample("visited", "visited"), sample("aside", "passed over"));
}

/**
 * A picture in a frame. Buttons and the keys + - 0 change its size, and the mouse drags it.
 * `show` of the returned element replaces the picture.
 */
function zoomable(first) {
  let [shown, scale] = [first, 1];
  const frame = element("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "graph; + and - change its size, arrows move it" }, shown);
  const resize = (wanted) => {
    scale = Math.min(4, Math.max(0.25, wanted));
    const { width, height } = shown.viewBox.baseVal;
    shown.setAttribute("width", width * scale);
    shown.setAttribute("height", height * scale);
  };
  const fit = () => resize(Math.min(1, (frame.clientWidth - 4) / shown.viewBox.baseVal.width));
  new ResizeObserver((_, self) => { // when it gets its place in the page
    self.disconnect();
    resize(Math.min(1, Math.max(0.6, (frame.clientWidth - 4) / shown.viewBox.baseVal.width)));
  }).observe(frame);
  const button = (name, said, action) => {
    const made = element("button", { type: "button", class: "small", "aria-label": said, title: said }, name);
    made.addEventListener("click", action);
    return made;
  };
  frame.addEventListener("keydown", (event) => {
    const wanted = { "+": () => resize(scale * 1.25), "-": () => resize(scale / 1.25), 0: () => resize(1) }[event.key];
    if (!wanted || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    wanted();
  });
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    resize(scale * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
  }, { passive: false });
  draggable(frame);
  const sizes = [button("−", "smaller", () => resize(scale / 1.25)), button("+", "larger", () => resize(scale * 1.25)), button("fit", "fit: as wide as the page", fit)];
  const show = (next) => {
    shown.replaceWith(next);
    shown = next;
    resize(scale);
  };
  return Object.assign(element("div", { class: "pictured" }, element("p", { class: "take" }, sizes), frame), { show, fit });
}

function draggable(frame) {
  let from = null;
  frame.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) from = [event.clientX + frame.scrollLeft, event.clientY + frame.scrollTop];
  });
  frame.addEventListener("pointermove", (event) => {
    if (from === null || event.buttons !== 1) return (from = null);
    [frame.scrollLeft, frame.scrollTop] = [from[0] - event.clientX, from[1] - event.clientY];
  });
}
