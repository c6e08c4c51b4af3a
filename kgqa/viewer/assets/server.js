// Asking the server. Whatever it refuses comes as one line, which the page shows.

export async function asked(url, options) {
  const response = await fetch(url, options);
  const answer = await response.json().catch(() => ({ error: `${response.status} ${response.statusText}` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Rows of an address some at a time; the first few come at once. */
export async function* pages(url, first, later) {
  for (let from = 0, all = 1; from < all; ) {
    const joined = `${url}${url.includes("?") ? "&" : "?"}from=${from}&count=${from ? later : first}`;
    const { rows, count } = await asked(joined);
    [from, all] = [rows.length ? from + rows.length : count, count];
    yield rows;
  }
}

export const runAddress = (key) => `/run/${key.split("/").map(encodeURIComponent).join("/")}`;

export function trouble(error) {
  const line = document.getElementById("trouble");
  line.hidden = !error;
  line.textContent = error ? (error.message ?? String(error)) : "";
}
