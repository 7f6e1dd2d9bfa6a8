// A file comes to the server in parts, each soon enough to be answered; what was cut goes on where it stopped.
"use strict";
// Who shares a dataset's budget says no total of its own.
document.addEventListener("change", ({ target }) => {
  const total = target.dataset.shares && document.getElementById(target.dataset.shares);
  if (total) total.disabled = Boolean(target.value);
});
// What most people say is filled in where somebody asks for it, to be seen and changed before it holds.
document.addEventListener("click", ({ target }) => {
  for (const [id, value] of Object.entries(JSON.parse(target.dataset.usual ?? "{}"))) {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
});
(() => {
  const PART = 1 << 20, TRIES = 6;
  const form = document.getElementById("upload");
  if (!form) return;
  const says = document.getElementById("upload-says"), bar = document.getElementById("upload-bar");
  const wait = seconds => new Promise(done => setTimeout(done, 1000 * seconds));

  const ask = async (method, path, body, type) => {
    for (let tries = 1; ; tries += 1) {
      let answer = null;
      try {
        answer = await fetch(path, { method, body, headers: { "Content-Type": type } });
      } catch { /* the connection was cut; the next try says more */ }
      if (answer?.ok) return answer.json();
      const told = answer ? await answer.json().catch(() => null) : null;
      const again = !answer || [408, 429, 503, 504].includes(answer.status);
      if (told?.error.details.received !== undefined) return told.error.details; // where to go on
      if (!again || tries === TRIES) throw new Error(told?.error.message ?? "The server cannot be reached.");
      await wait(Number(answer?.headers.get("Retry-After")) || tries);
    }
  };

  form.addEventListener("submit", async event => {
    event.preventDefault();
    const file = document.getElementById("file").files[0], button = form.querySelector("button");
    button.disabled = true;
    bar.hidden = false;
    try {
      let draft = form.dataset.draft, at = Number(form.dataset.received ?? 0);
      if (draft && file.size !== Number(form.dataset.size)) throw new Error("This is another file: it has another size.");
      if (!draft) {
        const announced = JSON.stringify({ file: file.name, bytes: file.size, ...(form.dataset.into && { into: form.dataset.into }) });
        draft = (await ask("POST", "/v1/drafts", announced, "application/json")).draft;
      }
      while (at < file.size) {
        const part = file.slice(at, at + PART);
        at = (await ask("PUT", `/v1/drafts/${draft}/rows?at=${at}`, part, "application/octet-stream")).received;
        bar.value = at / file.size;
        says.textContent = `${Math.floor(100 * at / file.size)} % has come`;
      }
      location.assign(`/ui/drafts/${draft}`);
    } catch (error) {
      says.textContent = error.message;
      button.disabled = false;
    }
  });
})();
