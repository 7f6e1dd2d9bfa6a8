// The first link: its code stands behind the #, which is sent nowhere. It goes into a form, once, and out of the address.
"use strict";
(() => {
  const code = location.hash.slice(1), form = document.getElementById("by-link");
  if (!/^[\w-]{20,}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.code.value = code;
  form.submit();
})();
