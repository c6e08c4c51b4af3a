// Runs by their settings and figures: parallel axes, and one figure against another. A sweep's runs, or chosen ones.

import { columnsOf, differing, figureText, order } from "./columns.js";
import { runAddress } from "./server.js";

const COLOURS = ["#2f7fb5", "#c4622d", "#3f9461", "#9a5fb0", "#b58a1a", "#c0467c", "#5a7d8c", "#7f8b2f"]; // as in reports
const MOST = 8; // axes beside each other

export function showPlots(main, table, keys) {
  const sweeps = [...table.rows.values()].filter((row) => row.kind === "sweep" && row.runs?.length);
  const named = keys.map((key) => table.rows.get(key)).filter(Boolean);
  const runs = named.length ? [...new Set(named.flatMap((row) => (row.kind === "sweep" ? row.runs : [row.key])))].map((key) => table.rows.get(key)) : (table.visible ?? []);
  const rows = runs.filter((row) => row?.kind === "run" && row.figures && Object.keys(row.figures).length);
  const choice = element("select", { "aria-label": "Runs of" }, element("option", { value: "" }, named.length && named[0].kind !== "sweep" ? `${named.length} chosen` : "runs in the table"), sweeps.map((row) => element("option", { value: row.key }, `sweep ${row.name}`)));
  choice.value = named.length === 1 && named[0].kind === "sweep" ? named[0].key : "";
  choice.addEventListener("change", () => (location.hash = choice.value ? `#plots=${encodeURIComponent(choice.value)}` : "#plots"));
  const form = element("form", { class: "bar-of-tools" }, element("label", null, "runs of ", choice), element("output", null, `${rows.length} runs with figures`));
  if (!rows.length) {
    main.replaceChildren(form, element("section", null, element("p", null, "No run with figures here: choose a sweep, or take the filter off the table.")));
    return;
  }
  const columns = columnsOf(rows);
  const settings = axesOf(rows, columns, named);
  const figures = [...columns.values()].filter(({ kind }) => kind === "figure").map(({ id }) => id);
  const scores = figures.filter((id) => rows.some((row) => row.figures[id]?.length === 3));
  const costs = figures.filter((id) => !scores.includes(id));
  const offered = [...settings, ...figures];
  const pick = (name, first) => {
    const select = element("select", null, offered.map((id) => element("option", { value: id }, id)));
    select.value = first;
    form.append(element("label", null, `${name} `, select));
    return select;
  };
  const [across, up, by] = [pick("across", costs.find((id) => id.startsWith("tokens")) ?? offered[0]), pick("up", scores[0] ?? figures[0]), pick("colour", settings[0] ?? figures[0])];
  const place = element("div", { class: "plots" });
  const draw = () => {
    const paint = colouring(rows, columns.get(by.value));
    place.replaceChildren(
      element("section", null, element("h2", null, "Parallel axes"), element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Parallel axes" }, parallel(rows, [...settings.slice(0, MOST - 2), ...new Set([up.value, across.value])].map((id) => columns.get(id)), paint)), legend(by.value, paint)),
      element("section", null, element("h2", null, `${up.value} against ${across.value}`), element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Scatter" }, scatter(rows, columns.get(across.value), columns.get(up.value), paint)), legend(by.value, paint)),
    );
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const select of [across, up, by]) select.addEventListener("change", draw);
  main.replaceChildren(form, place);
  draw();
}

/** A sweep's own axes first, then what else differs. */
function axesOf(rows, columns, named) {
  const own = named.length === 1 ? (named[0].axes ?? []) : [];
  const fields = ["dataset", "method", "model"].filter((id) => new Set(rows.map((row) => row[id])).size > 1);
  return [...new Set([...own, ...fields, ...differing(rows)])].filter((id) => columns.has(id) && new Set(rows.map((row) => columns.get(id).value(row))).size > 1);
}

const nameOf = (row) => `${row.method} ${row.name}`;

function colouring(rows, column) {
  const values = [...new Set(rows.map((row) => column.value(row)))].sort(order);
  const paint = (row) => COLOURS[values.indexOf(column.value(row)) % COLOURS.length];
  return Object.assign(paint, { values });
}

function legend(name, { values }) {
  if (values.length > COLOURS.length) return element("p", { class: "hint" }, `colours: ${values.length} values of ${name}, some alike`);
  return element("p", { class: "legend" }, `${name}: `, values.map((value, place) => {
    const sample = element("span", { class: "sample" });
    sample.style.background = COLOURS[place];
    return element("span", null, sample, ` ${value ?? "none"} `);
  }));
}

/** From a column's values, and the ends of their intervals, to 0..1, and its marks: of numbers round ones, of texts all. */
function scaleOf(rows, column) {
  const ends = column.kind === "figure" ? rows.flatMap((row) => row.figures[column.id] ?? []) : rows.map((row) => column.value(row));
  const values = ends.filter((value) => value !== null);
  const kinds = new Set(values.map((value) => typeof value));
  const distinct = [...new Set(values)].sort(order);
  if (kinds.size !== 1 || kinds.has("string") || (column.kind === "setting" && distinct.length <= 8)) {
    const at = (value) => (distinct.length < 2 ? 0.5 : distinct.indexOf(value) / (distinct.length - 1));
    return { at, marks: distinct.map((value) => [at(value), String(value)]) };
  }
  const [low, high] = [distinct[0], distinct.at(-1)];
  const span = high - low || Math.abs(high) || 1;
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * 10 ** Math.floor(Math.log10(span / 5))).find((each) => each >= span / 5);
  const [first, last] = [Math.floor(low / step), Math.ceil(high / step) || 1];
  const at = (value) => (value / step - first) / (last - first || 1);
  const marks = Array.from({ length: last - first + 1 }, (_, place) => (first + place) * step);
  return { at, marks: marks.map((value) => [at(value), String(Number(value.toPrecision(6)))]) };
}

function linked(row, said, ...shapes) {
  const link = drawing("a", { href: runAddress(row.key), class: "run-mark", "aria-label": said }, drawing("title", null, said), shapes);
  return link;
}

function parallel(rows, columns, paint) {
  const [width, high, left, top] = [Math.max(640, columns.length * 150), 330, 70, 40];
  const scales = columns.map((column) => scaleOf(rows, column));
  const x = (place) => left + (columns.length < 2 ? 0 : (place * (width - 2 * left)) / (columns.length - 1));
  const y = (share) => top + (1 - share) * (high - top - 24);
  const axes = columns.map(({ id }, place) => [
    drawing("line", { class: "axis", x1: x(place), x2: x(place), y1: y(0), y2: y(1) }),
    drawing("text", { x: x(place), y: 18, "text-anchor": "middle" }, drawing("title", null, id), shortened(id, 20)),
    scales[place].marks.map(([share, text]) => drawing("text", { class: "tick", x: x(place) - 6, y: y(share) + 4, "text-anchor": "end" }, shortened(text, 14))),
  ]);
  const lines = rows.map((row) => {
    const points = columns.map((column, place) => [column.value(row), place]).filter(([value]) => value !== null).map(([value, place]) => `${x(place)},${y(scales[place].at(value))}`);
    return linked(row, `${nameOf(row)}: ${columns.map((column) => `${column.id} ${column.text(row)}`).join(", ")}`, drawing("polyline", { points: points.join(" "), stroke: paint(row) }));
  });
  return drawing("svg", { class: "plot", viewBox: `0 0 ${width} ${high}`, width, height: high, role: "group", "aria-label": "each run is a line through its values" }, axes, lines);
}

function scatter(rows, across, up, paint) {
  const [width, height, left, top] = [760, 420, 80, 20];
  const [xs, ys] = [scaleOf(rows, across), scaleOf(rows, up)];
  const x = (share) => left + share * (width - left - 30);
  const y = (share) => top + (1 - share) * (height - top - 50);
  const grids = [
    ...xs.marks.map(([share, text]) => drawing("text", { class: "tick", x: x(share), y: height - 30, "text-anchor": "middle" }, shortened(text, 12))),
    ...ys.marks.map(([share, text]) => [drawing("line", { class: "grid", x1: left, x2: width - 30, y1: y(share), y2: y(share) }), drawing("text", { class: "tick", x: left - 6, y: y(share) + 4, "text-anchor": "end" }, shortened(text, 12))]),
    drawing("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle" }, across.id),
  ];
  const points = rows.filter((row) => across.value(row) !== null && up.value(row) !== null).map((row) => {
    const [at, to] = [x(xs.at(across.value(row))), y(ys.at(up.value(row)))];
    const [, low, high] = row.figures[up.id] ?? [];
    const interval = (high ?? null) === null ? null : drawing("line", { class: "interval", x1: at, x2: at, y1: y(ys.at(low)), y2: y(ys.at(high)), stroke: paint(row) });
    return linked(row, `${nameOf(row)}: ${up.id} ${figureText(row.figures[up.id]) || up.text(row)}, ${across.id} ${across.text(row)}`, interval, drawing("circle", { cx: at, cy: to, r: 5, fill: paint(row) }));
  });
  return drawing("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `${up.id} against ${across.id}, a point a run` }, grids, points);
}
