// A picture of triples. Texts of passages and models enter the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
let graphs = 0; // drawn so far: each has an arrow head of its own

function drawing(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** Entities in columns by their distance from the first head; relations as labelled arrows. */
function graphView(triples) {
  graphs += 1;
  const columns = new Map();
  for (const [head, , tail] of triples) {
    if (!columns.has(head)) columns.set(head, columns.has(tail) ? Math.max(0, columns.get(tail) - 1) : 0);
    if (!columns.has(tail)) columns.set(tail, columns.get(head) + 1);
  }
  const [wide, high, boxWide, boxHigh] = [250, 58, 140, 28];
  const counts = [];
  const at = new Map();
  for (const [entity, column] of columns) {
    counts[column] = (counts[column] ?? 0) + 1;
    at.set(entity, [column * wide + 4, (counts[column] - 1) * high + 22]);
  }
  const [width, height] = [(counts.length - 1) * wide + boxWide + 60, Math.max(...counts.map((count) => count ?? 0)) * high + 14];
  const arrow = drawing("marker", { id: `arrow${graphs}`, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, drawing("path", { d: "M0 0L8 4L0 8z" }));
  const arrows = new Map(); // relations between the same two share an arrow
  for (const [head, relation, tail] of triples) {
    const key = JSON.stringify([head, tail]);
    arrows.set(key, [...new Set([...(arrows.get(key) ?? []), relation])]);
  }
  const edges = [...arrows].map(([key, relations], index) => {
    const [head, tail] = JSON.parse(key);
    return edgeView(at.get(head), at.get(tail), relations.join(", "), index);
  });
  const boxes = [...at].map(([entity, [x, y]]) => [
    drawing("rect", { x, y, width: boxWide, height: boxHigh, rx: 5 }),
    drawing("text", { x: x + boxWide / 2, y: y + boxHigh / 2 + 4 }, drawing("title", null, entity), shortened(entity, 20)),
  ]);
  const picture = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `graph of ${triples.length} triples, listed below` }, drawing("defs", null, arrow), edges, boxes);
  return zoomable(picture, width, height);

  function edgeView([fromX, fromY], [toX, toY], relation, index) {
    const middle = boxHigh / 2;
    const forward = toX > fromX;
    const start = [fromX + boxWide, fromY + middle];
    const end = forward ? [toX - 2, toY + middle] : [toX + boxWide + 2, toY + middle];
    // backwards or within a column: a bow beside the boxes
    const bend = forward ? [start[0] + 50, start[1], end[0] - 50, end[1]] : [start[0] + 50, start[1], end[0] + 50, end[1]];
    const label = { x: (start[0] + end[0]) / 2 + (forward ? 0 : 30), y: (start[1] + end[1]) / 2 - 5 - (forward ? 0 : 6 + (index % 3) * 10) };
    return [
      drawing("path", { d: `M${start} C${bend.slice(0, 2)} ${bend.slice(2)} ${end}`, "marker-end": `url(#arrow${graphs})` }),
      drawing("text", { class: "relation", ...label }, drawing("title", null, relation), shortened(relation, 17)),
    ];
  }
}

/** The picture in a frame that scrolls, with buttons and the keys + - 0 for its size; it is dragged with the mouse. */
function zoomable(picture, width, height) {
  let scale = 1;
  const frame = element("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "graph; + and - change its size, arrows move it" }, picture);
  const resize = (wanted) => {
    scale = Math.min(4, Math.max(0.25, wanted));
    picture.setAttribute("width", width * scale);
    picture.setAttribute("height", height * scale);
  };
  const fit = () => resize(Math.min(1, (frame.clientWidth - 4) / width));
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
  return element("div", { class: "pictured" }, element("p", { class: "take" }, sizes), frame);
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
