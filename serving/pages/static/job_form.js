// The form of a new job: the price follows what is typed, so no button is needed for it.
"use strict";
(() => {
  const form = document.getElementById("job-form");
  if (!form) return;
  document.getElementById("show-price").hidden = true;
  const price = document.getElementById("price");
  const offer = () => {
    for (const button of price.querySelectorAll("[data-epsilon]")) button.hidden = false;
  };
  offer();
  // What was priced is no longer what stands there: nothing can be sent until the new price has come.
  form.addEventListener("input", () => {
    for (const button of price.querySelectorAll("[formmethod]")) button.disabled = true;
  });
  price.addEventListener("htmx:afterSwap", offer);
  price.addEventListener("click", event => {
    const button = event.target.closest("[data-epsilon]");
    if (!button) return;
    const field = document.getElementById("epsilon");
    field.value = button.dataset.epsilon;
    field.dispatchEvent(new Event("change", { bubbles: true }));
    field.focus();
  });
  // What was typed, or filled in by the browser, before the scripts were there.
  addEventListener("load", () => {
    const field = document.getElementById("epsilon");
    if (field.value !== field.defaultValue) field.dispatchEvent(new Event("change", { bubbles: true }));
  });
  // Enter asks for the price, and never sends the form by accident.
  form.addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    event.target.dispatchEvent(new Event("change", { bubbles: true }));
  });
})();
