// A file of records: its bytes and its name are sent, the server reads it, and gives back a file of predictions.

const form = document.querySelector("form.batch");
const model = document.getElementById("model").dataset.model;
const WHOLE = 16 << 20; // bytes of a file
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const chosen = (name) => document.getElementById(`batch-${name}`).value;

// How the file is written, where it was chosen otherwise than the model's dataset: what the server is told as `format`.
function chosenFormat() {
  const [cut, numbers, days] = ["cut", "numbers", "days"].map((name) => chosen(name) && JSON.parse(chosen(name)));
  const encoding = chosen("encoding");
  if (!cut && !encoding && !numbers && !days) return {};
  const said = JSON.parse(form.dataset.format) ?? {}, columns = { ...said.columns };
  const changes = { numeric: numbers, date: days, datetime: days };
  for (const [name, kind] of JSON.parse(form.dataset.kinds)) {
    if (changes[kind]) columns[name] = { ...columns[name], ...changes[kind] };
  }
  return { format: JSON.stringify({ form: { ...said.form, ...cut, ...(encoding && { encoding }) }, columns }) };
}

async function predicted(file) {
  const beside = document.getElementById("batch-cover");
  const query = new URLSearchParams({
    model, file: file.name, ...chosenFormat(), ...(chosen("keep") && { keep: chosen("keep") }), ...Object.fromEntries(new URLSearchParams(beside?.value)),
  });
  for (let tries = 1; ; tries += 1) {
    const answer = await fetch(`/predict?${query}`, {
      method: "POST", headers: { "Content-Type": "application/octet-stream", Accept: "text/csv" }, body: file,
    });
    if (answer.ok) return answer.text();
    const error = (await answer.json().catch(() => null))?.error;
    if (![429, 503, 504].includes(answer.status) || tries === 5) throw new Error(error?.message ?? `The server answered ${answer.status}.`);
    await wait(Number(answer.headers.get("Retry-After")) || tries);
  }
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = document.getElementById("batch-file").files[0], told = form.querySelector(".told");
  const bar = form.querySelector("progress"), button = form.querySelector("button");
  if (!file) { told.textContent = "Choose a file first."; return; }
  if (file.size > WHOLE) { told.textContent = `A file may have ${WHOLE >> 20} MB and 20,000 records here. A larger one: dpserve predict ${model} --data FILE --out FILE`; return; }
  button.disabled = true;
  bar.hidden = false;
  bar.removeAttribute("value"); // it is not known how far the server is
  told.textContent = "The server reads the file.";
  try {
    const text = await predicted(file), link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${file.name.replace(/(\.[a-z0-9]+)(\.(gz|zst|zip))?$/i, "")}.predicted.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    told.textContent = "Predicted. The file is with your downloads.";
  } catch (error) {
    told.textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
  } finally {
    button.disabled = false;
    bar.hidden = true;
  }
});
