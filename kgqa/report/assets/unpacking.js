// What a page holds deflated and in base64, unpacked where it is opened; see packing.py.

async function unpacked(line) {
  const bytes = Uint8Array.from(atob(line), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** Puts the paragraphs back where only their numbers stand. */
function whole(value, texts) {
  if (Array.isArray(value)) return value.map((each) => whole(each, texts));
  if (value === null || typeof value !== "object") return value;
  if ("\u0000" in value) return value["\u0000"].map((place) => texts[place]).join("\n\n");
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, whole(each, texts)]));
}
