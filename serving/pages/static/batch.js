// A file of records, sent in parts as it stands, read by the server, and given back as a file of predictions.

const form = document.querySelector("form.batch");
const model = document.getElementById("model").dataset.model;
const CELLS = 150_000, RECORDS = 10_000, BYTES = 4 << 20; // of one part: soon enough answered
const WHOLE = 16 << 20; // of a file that is sent as it is
const [QUOTE, LINE] = [0x22, 0x0a];
const READ_WHOLE = /\.(xlsx|xlsm|z?sav|por|dta|sas7bdat|xpt)$/i;
const MARKS = { ", ": ", ", "; ": "; ", ",": ",", ";": ";", tab: "\t", "|": "|", " ": " " };
const SAYS = /^\ufeff?"?sep=(.)"?(\r?\n|\r|$)/; // as spreadsheets write it before the header
const cut = (line, mark) => line.trim().split(mark === " " ? /[ \t]+/ : mark);
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const chosen = (name) => document.getElementById(`batch-${name}`).value;

// Where the header ends, and then each part: at the end of a line that is not within quotes. What a cell holds is the
// server's to read; where quotes stand otherwise a part may grow, or be refused, and no record is lost.
async function* placesOf(file, cells, heads) {
  const most = Math.max(1, Math.min(RECORDS, Math.floor(CELLS / cells)));
  let [at, start, lines, quoted, header] = [0, 0, 0, false, true];
  for (const reader = file.stream().getReader(); ; ) {
    const { value, done } = await reader.read();
    if (done) break;
    for (const byte of value) {
      at += 1;
      if (byte === QUOTE) quoted = !quoted;
      else if (byte === LINE && !quoted) {
        lines += 1;
        if (header ? lines === heads : lines >= most || at - start >= BYTES) {
          yield [start, at];
          [start, lines, header] = [at, 0, false];
        }
      }
      if (at - start > WHOLE) throw new Error(`A quote is not closed within ${WHOLE >> 20} MB. dpserve predict ${model} --data FILE --out FILE reads larger files.`);
    }
  }
  if (at > start) yield [start, at];
}

// As the page says it: what was chosen for the file, and of each column what its dataset's schema says.
function writtenAs() {
  const said = JSON.parse(form.dataset.format) ?? { columns: {} };
  const columns = Object.fromEntries(JSON.parse(form.dataset.numbers).map((name) => [name, {
    ...said.columns[name], decimal: chosen("decimal"), thousands: chosen("decimal") === "," ? "." : said.columns[name]?.thousands ?? "",
  }]));
  const cut = { ...said.form, delimiter: MARKS[chosen("delimiter")], encoding: chosen("encoding") };
  return JSON.stringify({ form: cut, columns: { ...said.columns, ...columns } });
}

async function predicted(body, kind = "text/csv", written = "", name = "") {
  for (let tries = 1; ; tries += 1) {
    const said = { model, ...(written && { format: written }), ...(name && { file: name }), ...(chosen("keep") && { keep: chosen("keep") }) };
    const answer = await fetch(`/predict?${new URLSearchParams(said)}`, {
      method: "POST", headers: { "Content-Type": kind, Accept: "text/csv" }, body,
    });
    if (answer.ok) return answer.text();
    const error = (await answer.json().catch(() => null))?.error;
    if (![429, 503, 504].includes(answer.status) || tries === 5) throw Object.assign(new Error(error?.message ?? `The server answered ${answer.status}.`), error?.details);
    await wait(Number(answer.headers.get("Retry-After")) || tries);
  }
}

// Parquet, workbooks and files of statistics are read by the server, the whole file at once.
async function unpacked(file, told, bar, noun, kind, written = "", name = "") {
  if (file.size > WHOLE) throw new Error(`${noun} files may have ${WHOLE >> 20} MB and 20,000 records here. A larger one: dpserve predict ${model} --data FILE --out FILE`);
  const text = await predicted(file, kind, written, name);
  told.textContent = `${(text.trimEnd().split("\n").length - 1).toLocaleString("en")} records are predicted`;
  bar.value = 1;
  return new Blob([text], { type: "text/csv" });
}

async function run(file, told, bar) {
  if (await file.slice(0, 4).text() === "PAR1") return unpacked(file, told, bar, "Parquet", "application/vnd.apache.parquet");
  if (READ_WHOLE.test(file.name)) return unpacked(file, told, bar, "Such", "application/octet-stream", form.dataset.format, file.name);
  const written = writtenAs(), answers = [];
  const { columns = [], skip = 0 } = JSON.parse(form.dataset.format)?.form ?? {};
  // Line ends that are not one byte, rows without a header, lines before it: as one part.
  const wide = /^utf-(16|32)/.test(chosen("encoding")) || columns.length > 0 || skip > 0;
  const first = await file.slice(0, 1 << 16).text();
  const heads = SAYS.test(first) ? 2 : 1;
  const cells = cut(first.split("\n", heads)[heads - 1] ?? "", MARKS[chosen("delimiter")]).length;
  if (wide && file.size > WHOLE) throw new Error(`A file in UTF-16 or UTF-32, or without a header in its first line, may have ${WHOLE >> 20} MB here. A larger one: dpserve predict ${model} --data FILE --out FILE`);
  let [header, records] = [0, 0];
  for await (const [start, end] of wide ? [[0, 0], [0, file.size]] : placesOf(file, cells, heads)) {
    if (start === 0 && !records && !header && !wide) {
      header = end;
      if (end < file.size) continue;
    }
    if (end === 0) continue;
    try {
      const body = header && start ? new Blob([file.slice(0, header), file.slice(start, end)]) : file.slice(start, end);
      const [head, ...rest] = (await predicted(body, "text/csv", written)).trimEnd().split("\n");
      if (!answers.length) answers.push(head);
      for (const line of rest) answers.push(line);
    } catch (error) {
      throw new Error(`${error.message}${records ? ` (records here are counted from record ${records} of the file)` : ""}`);
    }
    records = answers.length - 1;
    told.textContent = `${records.toLocaleString("en")} records are predicted`;
    bar.value = Math.min(1, end / file.size);
  }
  if (!records) throw new Error("The file has no record.");
  bar.value = 1;
  return new Blob([answers.join("\n"), "\n"], { type: "text/csv" });
}

// In the letters of the file, as far as the browser knows its encoding.
function decoded(bytes) {
  try {
    return new TextDecoder(chosen("encoding")).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

// What parts the columns is seen in the first line, and which columns there are to keep.
document.getElementById("batch-file")?.addEventListener("change", async ({ target }) => {
  const lines = decoded((await target.files[0]?.slice(0, 1 << 16).arrayBuffer()) ?? new ArrayBuffer()).split(/\r\n|\r|\n/, 2);
  const line = lines[0];
  const said = SAYS.exec(line)?.[1];
  const counts = Object.entries(MARKS).map(([name, mark]) => [said ? 2 * (mark === said) : mark === " " ? 0 : line.split(mark).length, name]);
  let [most, name] = counts.reduce((a, b) => (b[0] > a[0] ? b : a));
  if (most === 1 && cut(line, " ").length > 1) [most, name] = [2, " "];
  if (most > 1 && !chosen("delimiter").startsWith(name)) document.getElementById("batch-delimiter").value = name;
  const header = line.startsWith("PAR1") || READ_WHOLE.test(target.files[0]?.name) ? "" : lines[said ? 1 : 0] ?? "";
  const { columns = [] } = JSON.parse(form.dataset.format)?.form ?? {};
  const names = columns.length ? columns : cut(header.replace(/^\ufeff/, ""), MARKS[name] ?? " ").map((each) => each.trim().replace(/^"(.*)"$/, "$1")).filter(Boolean);
  document.getElementById("batch-columns").replaceChildren(...names.map((each) => new Option(each, each)));
});

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = document.getElementById("batch-file").files[0], told = form.querySelector(".told");
  const bar = form.querySelector("progress"), button = form.querySelector("button");
  if (!file) { told.textContent = "Choose a file first."; return; }
  button.disabled = true;
  bar.hidden = false;
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await run(file, told, bar));
    link.download = `${file.name.replace(/\.(csv|tsv|txt|data|parquet|xlsx|xlsm|z?sav|por|dta|sas7bdat|xpt)$/i, "")}.predicted.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    told.textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
  } finally {
    button.disabled = false;
  }
});
