// Follows the log of a pod below the page of its job: new lines come as events of the server, each as a text, never as markup.
"use strict";

(() => {
  const text = document.getElementById("log-text");
  if (!text) return;
  const MOST = 5000;
  const button = document.getElementById("log-follow");
  const aloud = document.getElementById("log-aloud");
  const state = document.getElementById("log-state");
  let source = null;
  let wanted = true;

  function say(words) {
    if (state.textContent !== words) state.textContent = words;
    button.textContent = wanted ? "Pause" : "Follow";
  }

  // Whoever has scrolled up stays where he is.
  function show(lines, begin) {
    const atEnd = begin || text.scrollHeight - text.scrollTop - text.clientHeight < 40;
    if (begin) text.replaceChildren();
    const part = document.createDocumentFragment();
    for (const line of lines) part.append(Object.assign(document.createElement("span"), { textContent: `${line}\n` }));
    text.append(part);
    while (text.childElementCount > MOST) text.firstElementChild.remove();
    if (atEnd) text.scrollTop = text.scrollHeight;
  }

  function rest() {
    if (source) source.close();
    source = null;
  }

  function follow() {
    if (source || !wanted || document.hidden) return;
    source = new EventSource(text.dataset.log);
    source.onmessage = (event) => {
      const update = JSON.parse(event.data);
      if (update.lines) show(update.lines, update.begin);
      say(update.wait || (text.textContent ? "follows" : "follows; nothing is printed yet"));
    };
    source.addEventListener("over", (event) => {
      wanted = false;
      rest();
      say(JSON.parse(event.data).why);
    });
    source.onerror = (event) => {
      if (event.target.readyState !== EventSource.CLOSED) return say("connecting ...");
      wanted = false;
      rest();
      say("not followed: too many logs are open, or the session is over");
    };
  }

  button.hidden = false;
  document.getElementById("log-read").hidden = false;
  button.addEventListener("click", () => {
    wanted = !wanted;
    if (wanted) follow();
    else rest();
    say(wanted ? "connecting ..." : "paused");
  });
  aloud.addEventListener("change", () => text.setAttribute("aria-live", aloud.checked ? "polite" : "off"));
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  window.addEventListener("pagehide", rest);
  text.scrollTop = text.scrollHeight;
  follow();
})();
