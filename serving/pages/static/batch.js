// A file of records, predicted in parts: read here, asked of /predict, and given as a file of predictions.

const form = document.querySelector("form.batch");
const model = document.getElementById("model").dataset.model;
const CELLS = 150_000, RECORDS = 10_000, BYTES = 4 << 20; // of one part: soon enough answered
const WHOLE = 16 << 20; // of a file that is sent as it is
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Rows of a CSV as they come: quotes may hold delimiters, line breaks and doubled quotes.
async function* rowsOf(file, encoding) {
  const reader = file.stream().pipeThrough(new TextDecoderStream(encoding, { fatal: true })).getReader();
  let row = [], cell = "", quoted = false, closed = false, comma = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    comma ??= [",", ";", "\t", "|"].reduce((a, b) => (count(value, b) > count(value, a) ? b : a));
    for (const mark of value) {
      if (quoted) {
        if (mark === '"') [quoted, closed] = [false, true]; else cell += mark;
      } else if (mark === '"') {
        if (closed) cell += mark; // a quote that was doubled
        [quoted, closed] = [true, false];
      } else if (mark === comma) {
        row.push(cell); [cell, closed] = ["", false];
      } else if (mark === "\n") {
        row.push(cell); [cell, closed] = ["", false];
        yield row; row = [];
      } else if (mark !== "\r") cell += mark;
    }
  }
  if (cell || row.length) { row.push(cell); yield row; }
}

const count = (text, mark) => text.split("\n", 1)[0].split(mark).length;
const quote = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

// 1.234,5 as 1234.5. What has points elsewhere is not guessed at; other words are left to the server.
const POINTS = /^\s*[-+]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][-+]?\d+)?\s*$/;
function pointed(cell) {
  if (POINTS.test(cell)) return cell.replaceAll(".", "").replace(",", ".");
  if (cell.includes(".")) throw new Error("A number of the file is not written as 1.234,5.");
  return cell;
}

async function predicted(body, kind = "text/csv") {
  for (let tries = 1; ; tries += 1) {
    const answer = await fetch(`/predict?model=${encodeURIComponent(model)}`, {
      method: "POST", headers: { "Content-Type": kind, Accept: "text/csv" }, body,
    });
    if (answer.ok) return answer.text();
    const said = (await answer.json().catch(() => null))?.error;
    if (![429, 503, 504].includes(answer.status) || tries === 5) throw Object.assign(new Error(said?.message ?? `The server answered ${answer.status}.`), said?.details);
    await wait(Number(answer.headers.get("Retry-After")) || tries);
  }
}

// Parquet is unpacked by the server, the whole file at once.
async function unpacked(file, told, bar) {
  if (file.size > WHOLE) throw new Error(`A Parquet file may have ${WHOLE >> 20} MB and 20,000 records here. A larger one: dpserve predict ${model} --data FILE --out FILE`);
  const text = await predicted(file, "application/vnd.apache.parquet");
  told.textContent = `${(text.trimEnd().split("\n").length - 1).toLocaleString("en")} records are predicted`;
  bar.value = 1;
  return new Blob([text], { type: "text/csv" });
}

async function run(file, told, bar) {
  if (await file.slice(0, 4).text() === "PAR1") return unpacked(file, told, bar);
  const features = JSON.parse(form.dataset.features), numbers = new Set(JSON.parse(form.dataset.numbers)), answers = [];
  const encoding = document.getElementById("batch-encoding").value, comma = document.getElementById("batch-decimal").value === ",";
  const written = features.map((name) => (comma && numbers.has(name) ? pointed : (cell) => cell));
  let places = null, part = [], bytes = 0, done = 0, records = 0, head = "";
  const header = features.map(quote).join(",");
  const ask = async () => {
    try {
      const [first, ...rest] = (await predicted([header, ...part].join("\r\n"))).trimEnd().split("\n");
      if (!head) answers.push(head = first);
      answers.push(...rest);
    } catch (error) {
      throw new Error(`${error.message}${records ? ` (records here are counted from record ${records} of the file)` : ""}`);
    }
    records += part.length;
    told.textContent = `${records.toLocaleString("en")} records are predicted`;
    bar.value = Math.min(1, done / file.size);
    [part, bytes] = [[], 0];
  };
  for await (const row of rowsOf(file, encoding)) {
    if (!places) {
      const names = row.map((name, at) => (at ? name : name.replace(/^\ufeff/, "")).trim());
      const absent = features.filter((name) => !names.includes(name));
      if (absent.length) throw new Error(`The file has no column called ${absent.slice(0, 5).join(", ")}.`);
      places = features.map((name) => names.indexOf(name));
      continue;
    }
    if (row.length === 1 && row[0] === "") continue;
    const line = places.map((at, nth) => quote(written[nth](row[at] ?? ""))).join(",");
    part.push(line);
    bytes += line.length;
    done += row.reduce((sum, cell) => sum + cell.length + 1, 0);
    if (part.length >= RECORDS || part.length * features.length >= CELLS || bytes >= BYTES) await ask();
  }
  if (part.length) await ask();
  if (!head) throw new Error("The file has no record.");
  bar.value = 1;
  return new Blob([answers.join("\n"), "\n"], { type: "text/csv" });
}

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
    link.download = `${file.name.replace(/\.(csv|parquet)$/i, "")}.predicted.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    told.textContent = error instanceof TypeError ? "The file is not in the encoding that was chosen, or the server cannot be reached." : error.message;
  } finally {
    button.disabled = false;
  }
});
