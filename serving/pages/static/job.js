// A job's page follows the job: by the server's events, or, where they do not get through, by asking.
"use strict";
(() => {
  const ASK_MS = 2000;
  const place = () => document.getElementById("job");
  let state = place().dataset.state;

  const show = job => {
    document.getElementById("progress").value = job.progress.done;
    document.getElementById("done").textContent = job.progress.done.toLocaleString("en");
    if (job.state === state) return;
    state = job.state;
    renew();
  };

  // What else changes with the state is drawn by the server, as on every load.
  const renew = async () => {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("job");
    if (!fresh) return;
    place().replaceWith(fresh);
    dpserve.say(`Job ${fresh.dataset.job}: ${fresh.querySelector(".badge").textContent}`);
  };

  const ask = async () => {
    try {
      const answer = await fetch(`/v1/jobs/${place().dataset.job}`);
      if (answer.ok) show(await answer.json());
    } catch { /* the server is away; the next turn asks again */ }
    if ("open" in place().dataset) setTimeout(ask, ASK_MS);
  };

  if (!("open" in place().dataset)) return;
  if (typeof EventSource === "undefined") { ask(); return; }
  const source = new EventSource(`/v1/jobs/${place().dataset.job}/events`);
  const told = event => show(JSON.parse(event.data));
  source.addEventListener("job", told);
  source.addEventListener("end", () => { source.close(); renew(); }); // all that became of it is known
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) ask(); });
})();
