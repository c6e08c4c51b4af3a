// Triples as a picture and as lines, after tables.js. Texts enter the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
let graphs = 0; // drawn so far: each has an arrow head of its own

function drawing(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

const mark = (text, kind = "") => element("span", { class: `mark ${kind}` }, text);

const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function triplesView(triples, titles) {
  return element("div", null, triples.map(([head, relation, tail, passage]) =>
    element("p", { class: "triple" }, head, " — ", element("b", null, relation), " → ", tail, passage ? mark(titles.get(passage) ?? passage) : null)));
}

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
  return element("div", { class: "graph" }, picture);

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
