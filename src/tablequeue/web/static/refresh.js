// A page that says data-refresh is read again every few seconds, while somebody looks at it. Without this it is as good
// as the moment it was loaded.
"use strict";
const EVERY = 4000;

async function refresh() {
  const main = document.querySelector("main[data-refresh]");
  if (!main || document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const focused = document.activeElement;
    if (focused && main.contains(focused)) focused.blur();
    main.replaceChildren(...page.querySelector("main").childNodes);
  } catch {
    // The server is away for a moment: the next time, then.
  }
}

if (document.querySelector("main[data-refresh]")) setInterval(refresh, EVERY);
