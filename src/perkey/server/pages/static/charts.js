// The live charts: counters of the last minutes, as rates a second.
"use strict";
(() => {
  const board = document.querySelector("[data-charts]");
  if (!board) return;
  const SPAN_S = 300;
  const SMOOTH = 2;
  const samples = [];
  const charts = new Map();
  let live = true;

  function style(element, name) {
    // A canvas knows no custom properties, so let the style sheet work the colour out.
    const probe = document.createElement("i");
    element.append(probe);
    probe.style.color = `var(${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function soft(colour, ctx, height) {
    const fill = ctx.createLinearGradient(0, 0, 0, height);
    fill.addColorStop(0, `color-mix(in oklab, ${colour} 30%, transparent)`);
    fill.addColorStop(1, `color-mix(in oklab, ${colour} 4%, transparent)`);
    return fill;
  }

  function make(plot) {
    const line = style(plot, "--series");
    const muted = style(plot, "--muted");
    const grid = { stroke: style(plot, "--line"), width: 1 };
    const axis = { stroke: muted, font: "11px system-ui, sans-serif", ticks: { show: false }, grid };
    plot.replaceChildren();
    return new uPlot(
      {
        width: plot.clientWidth,
        height: plot.clientHeight,
        legend: { show: false },
        cursor: { show: false },
        padding: [6, 4, 0, 0],
        scales: {
          x: { time: true, range: () => [Date.now() / 1000 - SPAN_S, Date.now() / 1000] },
          y: { range: (_, low, high) => [0, Math.max(1, high || 0) * 1.1] },
        },
        axes: [
          { ...axis, grid: { show: false }, size: 18, space: 70, values: (_, at) => at.map((s) => {
            const minutes = Math.round((Date.now() / 1000 - s) / 60);
            return minutes ? `−${minutes} min` : "";
          }), splits: () => [4, 2].map((m) => Date.now() / 1000 - m * 60) },
          { ...axis, size: 34, space: 24 },
        ],
        series: [{}, { stroke: line, width: 1.5, points: { show: false }, fill: (u) => soft(line, u.ctx, u.bbox.height) }],
      },
      [[], []],
      plot,
    );
  }

  function rates(name) {
    const at = [];
    const rate = [];
    for (let i = SMOOTH; i < samples.length; i++) {
      const [old, now] = [samples[i - SMOOTH], samples[i]];
      const seconds = (now.at - old.at) / 1000;
      if (seconds <= 0) continue;
      at.push(now.at / 1000);
      rate.push(Math.max(0, now[name] - old[name]) / seconds);
    }
    return [at, rate];
  }

  function draw() {
    for (const [plot, chart] of charts) {
      const name = plot.dataset.series;
      const data = rates(name);
      chart.setData(data);
      const last = data[1].at(-1) || 0;
      board.querySelector(`[data-rate="${name}"]`).textContent = last < 10 ? last.toFixed(1) : Math.round(last).toLocaleString("en");
      if (samples.length) board.querySelector(`[data-total="${name}"]`).textContent = samples.at(-1)[name].toLocaleString("en");
    }
  }

  function remake() {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    for (const plot of board.querySelectorAll(".plot")) charts.set(plot, make(plot));
    draw();
  }

  function take(found) {
    const after = samples.length ? samples.at(-1).at : 0;
    samples.push(...found.filter((each) => each.at > after));
    while (samples.length > SPAN_S + SMOOTH) samples.shift();
    draw();
  }

  // The server sends the samples; where it does not, the page asks for them.
  async function read() {
    if (document.documentElement.dataset.stream !== "none" || !live || document.visibilityState !== "visible") return;
    const after = samples.length ? samples.at(-1).at : 0;
    try {
      const answer = await fetch(`${board.dataset.charts}?after=${after}`);
      if (answer.ok) take(await answer.json());
    } catch {
      return; // the server is away: the next second asks again
    }
  }

  document.addEventListener("perkey:samples", (event) => take(event.detail));
  document.addEventListener("perkey:live", (event) => { live = event.detail; });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", remake);
  let width = 0;
  new ResizeObserver(() => {
    if (board.clientWidth !== width) {
      width = board.clientWidth;
      remake();
    }
  }).observe(board);
  remake();
  read();
  setInterval(read, 1000);
})();
