// Reloads the content of pages with data-refresh every few seconds while they are visible. Without this script they show
// the moment at which they were loaded.
"use strict";
const EVERY = 4000;

async function refresh() {
  const main = document.querySelector("main[data-refresh]");
  // A question that somebody is about to answer stays.
  if (!main || document.hidden || main.querySelector(".sure[open]")) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const focused = document.activeElement;
    if (focused && main.contains(focused)) focused.blur();
    main.replaceChildren(...page.querySelector("main").childNodes);
  } catch {
    // The server is unavailable: try again the next time.
  }
}

if (document.querySelector("main[data-refresh]")) setInterval(refresh, EVERY);
