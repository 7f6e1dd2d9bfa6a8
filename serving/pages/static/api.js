// Every door of the server, from its own description; the browser's session is sent along.
"use strict";
addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: "/docs.json", dom_id: "#swagger", validatorUrl: null, docExpansion: "list", defaultModelsExpandDepth: -1,
    persistAuthorization: false, withCredentials: true,
  });
  dpserve.themed(() => {
    const dark = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "");
    document.documentElement.classList.toggle("dark-mode", dark === "dark");
  });
});
