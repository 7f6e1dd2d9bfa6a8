// A file that is chosen, or dropped on the page, is found in the ledger, or in the list of models, by its digest: nothing
// of it is sent.
"use strict";
(() => {
  const field = document.getElementById("of-file"), models = document.querySelector("[data-find=file]");
  if (!(field || models) || !globalThis.crypto?.subtle) return; // no digests without a connection that the browser trusts
  if (field) document.getElementById("by-file").hidden = false;
  const hex = bytes => [...new Uint8Array(bytes)].map(each => each.toString(16).padStart(2, "0")).join("");

  // A statement says of which model it is; a proof, which entry it is of; anything else is known by its own digest.
  const address = async file => {
    const raw = await file.arrayBuffer();
    const text = raw.byteLength < 1 << 24 ? new TextDecoder().decode(raw) : "";
    const entry = !models && file.name.endsWith(".tlog-proof") && /^index (\d+)$/m.exec(text);
    if (entry) return `/ui/ledger/${entry[1]}`;
    let wanted = hex(await crypto.subtle.digest("SHA-256", raw));
    try {
      const said = JSON.parse(text), envelope = said.dsseEnvelope ?? said;
      wanted = JSON.parse(atob(envelope.payload)).subject[0].digest.sha256;
    } catch { /* it is no statement */ }
    return models ? `/ui/models?q=${encodeURIComponent(wanted)}` : `/ui/ledger?text=${encodeURIComponent(wanted)}`;
  };
  const find = async file => { if (file) location.assign(await address(file)); };

  field?.addEventListener("change", () => find(field.files[0]));
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => { event.preventDefault(); find(event.dataTransfer.files[0]); });
})();
