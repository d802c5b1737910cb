// What a page does by itself: ages that grow, parts that are read again, copying, confirming.
"use strict";
(() => {
  const GAP_MS = 1000; // between two looks at what the server tells of
  const SLOW_MS = 10000; // what only time changes: a claim that is late, a lease that ends
  const POLL_MS = 2000; // where the server tells nothing
  const RETRY_MS = 30000; // after it refused to
  const seen = new Map();
  let live = true;
  let pressed = false;
  let due = false;
  let looked = Date.now();
  let stream = null;
  let following = "";
  let refused = 0;
  let timer = 0;

  function ago(seconds) {
    if (seconds < 1.5) return "now";
    if (seconds < 90) return `${Math.round(seconds)} s ago`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
    if (seconds < 5184000) return `${Math.round(seconds / 86400)} days ago`;
    return "";
  }

  function left(ms) {
    const seconds = Math.max(0, ms) / 1000;
    return seconds < 90 ? `${Math.ceil(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  }

  function tell(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function tick() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const at = time.dateTime;
      if (!time.title) time.title = `${new Date(at).toLocaleString()} here, ${at}`;
      const text = ago((now - Date.parse(at)) / 1000);
      if (text) tell(time, text);
    }
    for (const span of document.querySelectorAll("[data-left]")) {
      if (!span.dataset.until) span.dataset.until = String(now + Number(span.dataset.left));
      tell(span, left(Number(span.dataset.until) - now));
    }
  }

  function ready() {
    for (const button of document.querySelectorAll(".copy, .live")) button.dataset.ready = "";
    tick();
    follow();
  }

  async function copy(button) {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      tell(button, "Copied");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("code, .key"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      tell(button, "Selected");
    }
    setTimeout(() => tell(button, "Copy"), 1500);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches(".copy")) copy(button);
    if (button.matches("[data-live]")) {
      live = !live;
      button.setAttribute("aria-pressed", String(live));
      document.dispatchEvent(new CustomEvent("perkey:live", { detail: live }));
      follow();
    }
    if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
    if (button.dataset.closes !== undefined) button.closest("dialog").close();
  });

  // A part that came back as it was stays as it is: focus, selection and scrolling are kept.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, xhr, requestConfig } = event.detail;
    if (!target || target.dataset.livePart === undefined || xhr.status !== 200) return;
    const asked = requestConfig && requestConfig.elt !== target; // a search, not a second look
    if (pressed && !asked) {
      event.detail.shouldSwap = false; // what is under the finger must not go before it is lifted
      due = true;
      return;
    }
    if (seen.get(target.id) === serverResponse) event.detail.shouldSwap = false;
    seen.set(target.id, serverResponse);
  });
  document.addEventListener("htmx:afterSwap", ready);

  document.addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel", "dragend"]) {
    document.addEventListener(end, () => { setTimeout(() => { pressed = false; }, 50); });
  }

  function busy(part) {
    // Not under a finger: a picked radio, an open question or selected text would be lost.
    const chosen = getSelection();
    return (
      pressed ||
      part.matches(":has(dialog[open], input:focus, [data-touched])") ||
      (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode))
    );
  }

  document.addEventListener("change", (event) => {
    const form = event.target.closest("[data-live-part] form");
    if (form) form.dataset.touched = "";
  });

  // Looks again, soon and not too often; where it may not now, the beat below comes back to it.
  function look() {
    const part = document.querySelector("[data-live-part]");
    if (!due || !part || !watched() || busy(part)) return;
    const wait = looked + GAP_MS - Date.now();
    clearTimeout(timer);
    if (wait > 0) {
      timer = setTimeout(look, wait);
      return;
    }
    due = false;
    looked = Date.now();
    htmx.trigger(part, "refresh");
  }

  function watched() {
    return live && document.visibilityState === "visible";
  }

  // One stream a page, while somebody looks at it: a browser opens only six to a server.
  function follow() {
    const part = document.querySelector("[data-follows]");
    const wanted = part && watched() && Date.now() >= refused ? part.dataset.follows : "";
    if (wanted === following) return;
    following = wanted;
    if (stream) stream.close();
    stream = null;
    if (wanted) listen(wanted);
    say();
  }

  function listen(address) {
    const mine = new EventSource(address);
    stream = mine;
    mine.addEventListener("open", () => {
      due = true; // what happened before it was open is not told
      say();
      look();
    });
    mine.addEventListener("error", () => {
      if (mine.readyState === EventSource.CLOSED && stream === mine) {
        stream = null;
        following = "";
        refused = Date.now() + RETRY_MS;
      }
      say();
    });
    mine.addEventListener("changed", () => {
      due = true;
      look();
    });
    mine.addEventListener("samples", (event) => {
      document.dispatchEvent(new CustomEvent("perkey:samples", { detail: JSON.parse(event.data) }));
    });
  }

  // "open", "lost" while the server is away, "none" where the page has to ask by itself.
  function say() {
    const state = !stream ? "none" : stream.readyState === EventSource.OPEN ? "open" : "lost";
    document.documentElement.dataset.stream = state;
    const button = document.querySelector("[data-live]");
    if (button) button.title = live && state === "lost" ? "The server does not answer; trying again" : "";
  }

  function beat() {
    follow();
    const every = document.documentElement.dataset.stream === "none" ? POLL_MS : SLOW_MS;
    if (document.documentElement.dataset.stream !== "lost" && Date.now() - looked >= every) due = true;
    tick();
    look();
  }

  document.addEventListener("visibilitychange", beat);
  addEventListener("pagehide", () => {
    if (stream) stream.close();
    stream = null;
    following = "";
  });
  addEventListener("pageshow", (event) => { if (event.persisted) beat(); });
  setInterval(beat, 1000);
  ready();
})();
