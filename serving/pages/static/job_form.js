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
  const sends = off => {
    for (const button of price.querySelectorAll("[formmethod]")) button.disabled = off;
  };
  const typed = () => {
    const fields = new FormData(form);
    fields.delete("priced");
    return new URLSearchParams(fields).toString();
  };
  let asked = null; // the fields of the last question for a price that did not fail
  let shown = null; // those of the price that stands there, where it was asked for here
  // Leaving a field asks once more, and that is how pressing the button begins: an answer that came before the button
  // was let go would put another in its place, and nothing would be sent. So the same is not asked twice.
  price.addEventListener("htmx:confirm", event => {
    if (typed() !== asked) return;
    event.preventDefault();
    if (shown === asked) sends(false);
  });
  price.addEventListener("htmx:configRequest", () => {
    asked = typed();
  });
  price.addEventListener("htmx:afterRequest", event => {
    if (!event.detail.successful) asked = null; // one that is replaced ends before the next is made
  });
  // What was priced is no longer what stands there: nothing can be sent until the new price has come.
  form.addEventListener("input", () => sends(true));
  price.addEventListener("htmx:afterSwap", () => {
    shown = asked;
    offer();
  });
  // What may be chosen has changed with the dataset or the target, and so has the price.
  form.addEventListener("htmx:afterSwap", ({ target }) => {
    if (target.id === "choices") document.getElementById("epsilon").dispatchEvent(new Event("change", { bubbles: true }));
  });
  price.addEventListener("click", event => {
    const button = event.target.closest("[data-epsilon]");
    if (!button) return;
    const field = document.getElementById("epsilon");
    field.value = button.dataset.epsilon;
    field.dispatchEvent(new Event("change", { bubbles: true }));
    field.focus();
  });
  // The slider stands at the step of its ladder that is nearest to what is typed, and moving it types that step.
  const epsilon = document.getElementById("epsilon");
  const slider = document.getElementById("epsilon-slider");
  const steps = slider.dataset.steps.split(" ");
  const follow = () => {
    const far = steps.map(step => Math.abs(Math.log(Number(step) / Number(epsilon.value))));
    if (Number(epsilon.value) > 0) slider.value = far.indexOf(Math.min(...far));
    slider.setAttribute("aria-valuetext", `ε ${steps[slider.value]}`);
  };
  slider.hidden = false;
  follow();
  epsilon.addEventListener("input", follow);
  epsilon.addEventListener("change", follow);
  slider.addEventListener("input", () => {
    epsilon.value = steps[slider.value];
    follow();
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
    asked = null; // the budget may have changed meanwhile
    event.target.dispatchEvent(new Event("change", { bubbles: true }));
  });
})();
