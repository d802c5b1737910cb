// What a page does by itself: ages that grow, parts that are read again, copying, confirming.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const seen = new Map();
  let live = true;
  let pressed = false;

  function ago(seconds) {
    if (seconds < 1.5) return "now";
    if (seconds < 90) return `${Math.round(seconds)} s ago`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
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
      if (!time.title) time.title = at;
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
  }

  async function copy(button) {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      tell(button, "Copied");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("code"));
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
    }
    if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
    if (button.dataset.closes !== undefined) button.closest("dialog").close();
  });

  // A part that came back as it was stays as it is: focus, selection and scrolling are kept.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, xhr } = event.detail;
    if (!target || target.dataset.livePart === undefined || xhr.status !== 200) return;
    if (pressed) {
      event.detail.shouldSwap = false; // what is under the finger must not go before it is lifted
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

  setInterval(() => {
    const part = document.querySelector("[data-live-part]");
    if (live && part && document.visibilityState === "visible" && !busy(part)) htmx.trigger(part, "refresh");
  }, EVERY_MS);
  setInterval(tick, 1000);
  ready();
})();
