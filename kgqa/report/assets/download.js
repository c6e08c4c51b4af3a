// Copy settings and the command to the clipboard, and download the questions of a page as files.

/** Returns a text as one word of a POSIX shell. */
const shellWord = (text) => (/^[\w@%+=:,./#-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function downloaded(name, type, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Returns a cell of a CSV file. As in section.py, formulas are marked as text. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return typeof value === "object" ? csvCell(JSON.stringify(value)) : String(value);
  const isNumber = /^[+-]?(\d[\d,]*)?\.?\d+(e[+-]?\d+)?$/i.test(value);
  const text = /^'*[=+\-@\t\r]/.test(value) && !isNumber ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvOf = (lines, names) => [names, ...lines.map((line) => names.map((name) => line[name]))].map((cells) => `${cells.map(csvCell).join(",")}\n`).join("");
const jsonlOf = (lines, names) => lines.map((line) => `${JSON.stringify(Object.fromEntries(names.map((name) => [name, line[name]])))}\n`).join("");

/** Adds buttons that copy a setting for the command line. */
function copyableTables() {
  for (const row of document.querySelectorAll(".settings tbody tr")) {
    const [key, value] = [...row.cells].map((cell) => cell.textContent);
    row.cells[1].append(" ", copying("copy", () => shellWord(`${key}=${value}`), `copy ${key}=${value}`));
  }
}
