// The questions of the run that a page shows, from the server: `servedQuestions` is where report.js looks for them.

{
  const [FIRST, PAGE] = [100, 500]; // rows asked for at once
  const key = document.documentElement.dataset.run.split("/").map(encodeURIComponent).join("/");

  const fetched = async (url) => {
    const response = await fetch(url);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  };

  globalThis.servedQuestions = {
    /** Rows in the data file's order, some at a time: the first are here before the last are made. */
    async *pages() {
      for (let from = 0, all = 1; from < all; ) {
        const { rows, count } = await fetched(`/api/questions/${key}?from=${from}&count=${from ? PAGE : FIRST}`);
        [from, all] = [from + rows.length, count];
        yield rows;
      }
    },
    /** What led to an answer, packed as in a file; what only its calls tell comes into its row. */
    async question(row) {
      const { line, calls } = await fetched(`/api/question/${key}?id=${encodeURIComponent(JSON.stringify(row.id))}`);
      Object.assign(row, calls);
      return line;
    },
  };
}
