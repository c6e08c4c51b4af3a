// Two runs' ways to one answer beside each other; after question.js.

/** This run and the other: answers, evidence, the notes of their methods. */
function besideView(row, traced) {
  const { other } = traced;
  const mine = { ...row, title: "", evidence: traced.evidence, evidence_titles: traced.evidence_titles, notes: traced.notes };
  const theirs = { ...row.other, ...other, title: other.of };
  const both = new Set(mine.evidence.filter((id) => other.evidence.includes(id)));
  return [element("h3", null, "both runs"), element("div", { class: "beside" }, sideView("this run", mine, both, traced), sideView("other run", theirs, both, traced))];
}

function sideView(name, side, both, traced) {
  const [, kind, said] = verdict(side);
  const gold = new Set(traced.question.support);
  const titles = new Map(passagesOf(traced).map((passage) => [passage.id, passage.title]));
  const evidence = side.evidence.map((id, place) => {
    const title = side.evidence_titles?.[place] || titles.get(id) || id;
    titles.set(id, title);
    return element("li", null, title, gold.has(id) && mark("gold", "gold"), !both.has(id) && mark(`only ${name}`, "used"));
  });
  const notes = Object.entries(side.notes || {}).filter(([, value]) => value !== null);
  return element(
    "div", { class: "side", role: "group", "aria-label": name },
    element("h4", null, name, " ", element("span", { class: "hint" }, side.title)),
    element("p", { class: "answered" }, mark(said, kind), " ", side.error ?? (side.answer || element("i", null, "empty"))),
    element("p", { class: "role" }, `EM ${percent(side.em)} · F1 ${percent(side.f1)} · ${side.model_calls} model calls · ${side.prompt_tokens} + ${side.output_tokens} tokens`),
    element("h5", null, `evidence (${evidence.length})`),
    evidence.length ? element("ol", { class: "plain" }, evidence) : element("p", { class: "hint" }, "none"),
    notes.map(([note, value]) => [element("h5", null, spaced(note)), methodNote(note, value, traced, titles)]),
  );
}
