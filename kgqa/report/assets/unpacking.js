// Unpacks the questions of a page, see explorer.py.

async function unpacked(line) {
  const bytes = Uint8Array.from(atob(line), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** Replaces numbers of paragraphs by their texts. */
function whole(value, texts) {
  if (Array.isArray(value)) return value.map((each) => whole(each, texts));
  if (value === null || typeof value !== "object") return value;
  if ("\u0000" in value) return value["\u0000"].map((place) => texts[place]).join("\n\n");
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, whole(each, texts)]));
}
